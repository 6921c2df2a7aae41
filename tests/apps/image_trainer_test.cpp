// Ranks that do not agree: each rank is given a configuration of its own, as only a broken launch could.
#include "apps/common/image_trainer.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <functional>
#include <memory>

#include "comm/local.h"
#include "tests/support.h"

namespace godwit::apps {
namespace {

using testing::AllOf;
using testing::HasSubstr;

data::ImageDataset images(int64_t count) {
  data::ImageDataset set{Shape{8, 8, 1}, 2, {}, {}};
  for (int64_t i = 0; i < count * 64; ++i) set.pixels.push_back(static_cast<uint8_t>(i * 37 % 251));
  for (int64_t i = 0; i < count; ++i) set.labels.push_back(static_cast<int32_t>(i % 2));
  return set;
}

// Trains with three ranks; `change` alters the configuration of one, which may have other data too.
void train(const std::function<void(TrainConfig&, int rank)>& change, const ImageData* data_of_rank_1 = nullptr) {
  const ImageData data{images(48), images(6), {{0.5f}, {0.25f}}};
  const TempFolder folder;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::tmpfile(), std::fclose);
  Progress progress(out.get(), Progress::Style::lines);
  run_local({3, 1}, [&](Communicator& comm) {
    TrainConfig config;
    config.optimizer = optimizer_defaults("sgdm");
    config.batch = 4;
    config.max_steps = 3;
    config.check_replicas = 2;
    config.run_dir = folder / "run";
    change(config, comm.rank);
    ImageTrainer(config, data_of_rank_1 && comm.rank == 1 ? *data_of_rank_1 : data, comm).run(progress);
  });
}

std::string error_when(const std::function<void(TrainConfig&)>& change_of_rank_1) {
  return error_of([&] {
    train([&](TrainConfig& config, int rank) {
      if (rank == 1) change_of_rank_1(config);
    });
  });
}

TEST(ImageTrainer, RanksThatAgreeTrain) {
  EXPECT_NO_THROW(train([](TrainConfig&, int) {}));
}

TEST(ImageTrainer, NamesTheRankWithAnotherModel) {
  EXPECT_THAT(error_when([](TrainConfig& config) { config.model.name = "resnet32"; }),
              AllOf(HasSubstr("the model's parameters"), HasSubstr("not the same on 1 ")));
}

TEST(ImageTrainer, NamesTheRankWithOtherData) {
  const auto error = [](const ImageData& other) { return error_of([&] { train([](TrainConfig&, int) {}, &other); }); };
  ImageData other{images(48), images(6), {{0.5f}, {0.25f}}};
  ++other.train.pixels.back();
  EXPECT_THAT(error(other), AllOf(HasSubstr("the training data"), HasSubstr("not the same on 1 ")));
  --other.train.pixels.back();
  other.test.labels[3] = 0;
  EXPECT_THAT(error(other), AllOf(HasSubstr("the test data"), HasSubstr("not the same on 1 ")));
}

TEST(ImageTrainer, NamesTheRankWithOtherInitialWeights) {
  EXPECT_THAT(error_when([](TrainConfig& config) { config.seed = 2; }),
              AllOf(HasSubstr("the initial weights"), HasSubstr("not the same on 1 ")));
}

TEST(ImageTrainer, CheckReplicasFindsDriftedParameters) {
  EXPECT_THAT(error_when([](TrainConfig& config) { config.optimizer.lr *= 2; }),
              AllOf(HasSubstr("the parameters after step 2"), HasSubstr("not the same on 1 ")));
}

// With a learning rate of 0 the parameters stay equal and only the momentum drifts.
TEST(ImageTrainer, CheckReplicasFindsDriftedOptimizerState) {
  EXPECT_THAT(error_of([] {
                train([](TrainConfig& config, int rank) {
                  config.optimizer.lr = 0;
                  config.optimizer.momentum = rank == 1 ? 0.5 : 0.9;
                });
              }),
              AllOf(HasSubstr("the optimizer's shared state after step 2"), HasSubstr("not the same on 1 ")));
}

}  // namespace
}  // namespace godwit::apps
