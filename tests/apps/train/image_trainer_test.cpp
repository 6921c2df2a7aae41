// Ranks with different configurations or data, as after a faulty launch.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "autograd/ops/scale.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "engine/clock.h"
#include "engine/safetensors.h"
#include "models/resnet.h"
#include "nn/weights.h"
#include "tests/apps/train/small_image_run.h"

namespace godwit::apps {
namespace image_trainer_test {

using testing::AllOf;
using testing::HasSubstr;
using namespace small_image_run;

// Trains with three ranks. `change` alters the configuration of a rank; rank 1 may have other data. `look` is called
// with the result and the run directory.
void train(const std::function<void(ImageConfig&, int rank)>& change, const ImageData* data_of_rank_1 = nullptr,
           const std::function<void(const Evaluation&, const std::string& folder)>& look = {}) {
  const ImageData data = make_data();
  printed({3, 1}, [&](ImageConfig& config, Communicator& comm, Progress& progress) {
    config.max_steps = 3;
    config.check_replicas = 2;
    change(config, comm.rank);
    const ImageData& seen = data_of_rank_1 && comm.rank == 1 ? *data_of_rank_1 : data;
    const Evaluation last = run(config, ImageTask(config, seen, comm), comm, progress);
    if (look && comm.rank == 0) look(last, config.run_dir);
  });
}

std::string error_when(const std::function<void(ImageConfig&)>& change_of_rank_1) {
  return error_of([&] {
    train([&](ImageConfig& config, int rank) {
      if (rank == 1) change_of_rank_1(config);
    });
  });
}

TEST(ImageTrainer, EqualRanksTrain) {
  EXPECT_NO_THROW(train([](ImageConfig&, int) {}));
}

TEST(ImageTrainer, EvaluationsReturnTheDeclaredFigures) {
  struct MisnamedTask : ImageTask {
    using ImageTask::ImageTask;
    std::vector<std::string> figures() const override { return {"test_loss", "test_top5", "test_top1"}; }
  };
  const ImageData data = make_data();
  const auto train = [&](ImageConfig& config, Communicator& comm, Progress& progress) {
    config.max_steps = 1;
    run(config, MisnamedTask(config, data, comm), comm, progress);
  };
  EXPECT_THAT(error_of([&] { printed({1, 1}, train); }),
              HasSubstr("evaluate() of resnet20 returns other figures than test_loss, test_top5, test_top1; change "));
}

constexpr std::chrono::milliseconds kSecondStep{300};

// A task that adds up the losses of the first step. The second step takes at least kSecondStep.
class SummingTask : public ImageTask {
 public:
  SummingTask(const ImageConfig& config, const ImageData& data, Communicator& comm, std::atomic<double>& sum)
      : ImageTask(config, data, comm), accumulation_(config.accumulation), sum_(sum) {}
  Forward forward(int64_t micro_batch) override {
    EXPECT_EQ(micro_batch, next_++);
    Forward result = ImageTask::forward(micro_batch);
    if (micro_batch < accumulation_) sum_ += result.loss.value().item();
    if (micro_batch == accumulation_) std::this_thread::sleep_for(kSecondStep);
    return result;
  }

 private:
  int64_t accumulation_, next_ = 0;
  std::atomic<double>& sum_;
};

// The reports after steps 1 and 4. The resumed run continues after step 2.
TEST(ImageTrainer, ReportsMeansAlsoAfterAResume) {
  const ImageData data = make_data();
  std::atomic<double> sum = 0;
  printed({2, 2}, [&](ImageConfig& config, Communicator& comm, Progress& progress) {
    config.epochs = 10, config.max_steps = 4, config.log_every = 100;
    config.batch = config.accumulation = 2;
    config.checkpoint.every = "2";
    config.schedule.name = "cosine";
    const Schedule rates(config.schedule, config.optimizer.number("lr"), 3, 4);
    const auto reports = [&] {
      comm.compute->barrier("test");
      std::vector<nlohmann::json> all;
      std::ifstream file(config.run_dir + "/metrics.jsonl");
      for (std::string line; std::getline(file, line);)
        if (const nlohmann::json read = nlohmann::json::parse(line); read.contains("lr")) all.push_back(read);
      comm.compute->barrier("test");
      return all;
    };
    SummingTask task(config, data, comm, sum);
    const auto begin = Clock::now();
    Trainer(image_program(), config, task, comm).run(progress);
    const double elapsed = seconds_since(begin);
    const std::vector<nlohmann::json> whole = reports();
    ASSERT_EQ(whole.size(), 2u);
    EXPECT_LT(whole[0]["step_s"].get<double>() + 3 * whole[1]["step_s"].get<double>(), elapsed);
    EXPECT_NEAR(whole[0]["loss"], sum / 8, 1e-4 * sum);
    EXPECT_NEAR(whole[0]["lr"], rates.lr(1), 1e-5);
    EXPECT_NEAR(whole[1]["lr"], rates.lr(4), 1e-5);
    if (comm.rank == 0) std::filesystem::remove_all(config.run_dir + "/checkpoints/step-4");
    config.resume = "auto";
    run(config, ImageTask(config, data, comm), comm, progress);
    const std::vector<nlohmann::json> resumed = reports();
    ASSERT_EQ(resumed.size(), 2u);
    for (const char* name : {"step", "loss", "accuracy", "bytes_intra", "bytes_inter"})
      EXPECT_EQ(resumed[1][name], whole[1][name]) << name;
    EXPECT_GT(resumed[1]["step_s"], std::chrono::duration<double>(kSecondStep).count() / 3) << "with step 2";
  });
}

// Counts evaluations, and the micro-batches before which replicas differ. At evaluations replicas must be equal.
class WatchedTask : public ImageTask {
 public:
  WatchedTask(const ImageConfig& config, const ImageData& data, Communicator& comm, int& local, int& evaluations)
      : ImageTask(config, data, comm), group_(*comm.compute), local_(local), evaluations_(evaluations) {}

  Forward forward(int64_t micro_batch) override {
    local_ += !agrees();
    return ImageTask::forward(micro_batch);
  }
  Evaluation evaluate(const ReadParameters& read, const CheckStop& check_stop) override {
    ++evaluations_;
    EXPECT_TRUE(agrees()) << "evaluation " << evaluations_;
    return ImageTask::evaluate(read, check_stop);
  }

 private:
  bool agrees() {
    double sum = 0;
    for (const Parameter& p : model().parameters())
      for (const float value : p.var.value().span<float>()) sum += static_cast<double>(value);
    const Tensor sums({group_.size()}, DType::f64);
    group_.all_gather(Tensor::of<double>({sum}, {1}), sums, "test");
    const std::vector<double> all = sums.to_vector<double>();
    return std::all_of(all.begin(), all.end(), [&](double x) { return x == all[0]; });
  }

  Group& group_;
  int &local_, &evaluations_;
};

// Pitfall 22: no step of T_u = 1, 2, 3, 7, 11 ends an epoch of four steps.
TEST(ImageTrainer, Pitfall22LocalStepsAreSynchronizedBeforeEveryEvaluation) {
  const ImageData data = make_data();
  printed({3, 1}, [&](ImageConfig& config, Communicator& comm, Progress& progress) {
    config.optimizer = "zero_one_adam";
    config.optimizer.set("warmup_steps", 2).set("intervals", "fixed").set("max_interval", 4);
    config.schedule.name = "constant";
    config.epochs = 3;
    config.check_replicas = 1;
    config.ema.decay = 0.5;
    int local = 0, evaluations = 0;
    const Evaluation last = run(config, WatchedTask(config, data, comm, local, evaluations), comm, progress);
    EXPECT_TRUE(std::isfinite(*last.loss));
    EXPECT_EQ(evaluations, 3);
    EXPECT_EQ(local, 4) << "replicas differ after steps 5, 6, 9 and 10; epochs end at 4, 8 and 12";
  });
}

// Each result is rounded by at most 2^-8, which changes the loss after three steps by a few hundredths.
TEST(ImageTrainer, TrainsInBfloat16WithA16BitWire) {
  std::vector<double> loss;
  for (const std::string type : {"f32", "bf16", "bf16"})
    train(
        [&](ImageConfig& config, int) {
          config.dtype = type, config.exchange.set("wire", type);
          config.check_replicas = 1;
        },
        nullptr, [&](const Evaluation& last, const std::string&) { loss.push_back(*last.loss); });
  EXPECT_NE(loss[1], loss[0]);
  EXPECT_NEAR(loss[1], loss[0], 0.1);
  EXPECT_EQ(loss[2], loss[1]) << "two runs must have equal bits";
}

TEST(ImageTrainer, NamesTheRankWithAnotherModel) {
  EXPECT_THAT(error_when([](ImageConfig& config) { config.model.name = "resnet32"; }),
              AllOf(HasSubstr("the model's parameters"), HasSubstr(": rank 1 differs from the rest")));
}

TEST(ImageTrainer, NamesTheRankWithOtherData) {
  const auto error = [](const ImageData& other) { return error_of([&] { train([](ImageConfig&, int) {}, &other); }); };
  EXPECT_THAT(error(make_data(1)), AllOf(HasSubstr("the training data"), HasSubstr(": rank 1 differs from the rest")));
  EXPECT_THAT(error(make_data(0, 1)), AllOf(HasSubstr("the test data"), HasSubstr(": rank 1 differs from the rest")));
}

TEST(ImageTrainer, NamesTheRankWithOtherInitialWeights) {
  EXPECT_THAT(error_when([](ImageConfig& config) { config.seed = 2; }),
              AllOf(HasSubstr("the initial weights"), HasSubstr(": rank 1 differs from the rest")));
}

TEST(ImageTrainer, CheckReplicasFindsDriftedParameters) {
  EXPECT_THAT(
      error_when([](ImageConfig& config) { config.optimizer.set("lr", 2 * config.optimizer.number("lr")); }),
      AllOf(HasSubstr("the parameter 'fc.bias' (bucket 0) after step 2"), HasSubstr(": rank 1 differs from the rest")));
}

TEST(ImageTrainer, ReplicasAreCheckedAtTheEndByDefault) {
  EXPECT_THAT(
      error_of([] {
        train([](ImageConfig& config, int rank) {
          config.check_replicas = ImageConfig().check_replicas;
          config.optimizer.set("lr", rank == 1 ? 0.2 : 0.1);
        });
      }),
      AllOf(HasSubstr("the parameter 'fc.bias' (bucket 0) after step 3"), HasSubstr(": rank 1 differs from the rest")));
}

// With a learning rate of 0 the parameters stay equal and only the momentum drifts.
TEST(ImageTrainer, CheckReplicasFindsDriftedState) {
  EXPECT_THAT(error_of([] {
                train([](ImageConfig& config, int rank) {
                  config.optimizer.set("lr", 0);
                  config.optimizer.set("momentum", rank == 1 ? 0.5 : 0.9);
                });
              }),
              AllOf(HasSubstr("the optimizer's shared state after step 2"),
                    HasSubstr(": rank 1 differs from the rest")));
}

// The averaged weights are evaluated: a model loaded from the saved averages has the reported loss.
TEST(ImageTrainer, EvaluatesTheAveragedWeightsItSaves) {
  train(
      [](ImageConfig& config, int) {
        config.ema.decay = 0.9;
        config.schedule.name = "constant";
        config.optimizer.set("lr", 0.5);
      },
      nullptr,
      [](const Evaluation& last, const std::string& folder) {
        ResNetConfig model = resnet_config("resnet20");
        model.in_channels = 1;
        model.num_classes = 2;
        const ImageData data = make_data();
        Tensor x({6, 8, 8, 1}), labels({6}, DType::i32);
        for (int64_t i = 0; i < 6; ++i) labels.data<int32_t>()[i] = data.test->read(i, x.data<float>() + i * 64);
        const auto loss_of = [&](const std::string& file) {
          const auto resnet = make_resnet(model);
          nn::load_weights(folder + file, *resnet);
          resnet->train(false);
          const NoGrad no_grad;
          return ops::softmax_cross_entropy(resnet->forward(Var(x)), labels).value().item();
        };
        // The trainer's ranks have two images each, so float32 rounding differs.
        EXPECT_NEAR(*last.loss, loss_of("/ema.safetensors"), 1e-5 * *last.loss);
        EXPECT_GT(std::abs(*last.loss - loss_of("/weights.safetensors")), 1e-4 * *last.loss);
      });
}

// With a learning rate of 0 the weights do not change, so the averages are the weights. Before the first step, the
// parameters of zero1 and zero2 are already rounded.
TEST(ImageTrainer, AveragesBeginWithTheMasterWeights) {
  for (const std::string sharding : {"zero1", "zero2"})
    for (const std::string wire : {"bf16", "int8"})
      train(
          [&](ImageConfig& config, int) {
            config.ema.decay = 0.9;
            config.optimizer = "sgd";
            config.optimizer.set("lr", 0).set("weight_decay", 0);
            config.exchange.set("sharding", sharding).set("parameter_wire", wire);
          },
          nullptr,
          [&](const Evaluation&, const std::string& folder) {
            ResNetConfig model = resnet_config("resnet20");
            model.in_channels = 1;
            model.num_classes = 2;
            std::vector<std::vector<float>> values;
            for (const std::string file : {"/weights.safetensors", "/ema.safetensors"}) {
              const auto resnet = make_resnet(model);
              nn::load_weights(folder + file, *resnet);
              values.emplace_back();
              for (const Parameter& parameter : resnet->parameters())
                for (const float x : parameter.var.value().to_vector<float>()) values.back().push_back(x);
            }
            EXPECT_TRUE(values[0] == values[1]) << sharding << ", " << wire;
          });
}

// With zero1 and zero2, a worker has current averages of its shard only, until they are gathered.
TEST(ImageTrainer, ResumingACompleteRunKeepsItsFiles) {
  const ImageData data = make_data();
  for (const std::string sharding : {"zero1", "zero3"})
    printed({3, 1}, [&](ImageConfig& config, Communicator& comm, Progress& progress) {
      config.max_steps = 3;
      config.ema.decay = 0.9;
      config.exchange.set("sharding", sharding);
      const auto files = [&] {
        comm.compute->barrier("test");
        return std::pair(read(config.run_dir + "/weights.safetensors"), read(config.run_dir + "/ema.safetensors"));
      };
      run(config, ImageTask(config, data, comm), comm, progress);
      const auto before = files();
      config.resume = "auto";
      run(config, ImageTask(config, data, comm), comm, progress);
      const auto after = files();
      EXPECT_TRUE(before.first == after.first) << sharding << ", weights";
      EXPECT_TRUE(before.second == after.second) << sharding << ", averages";
      comm.compute->barrier("test");
    });
}

// A task whose evaluation is stopped before its first batch.
class StoppedTask : public ImageTask {
 public:
  StoppedTask(const ImageConfig& config, const ImageData& data, Communicator& comm)
      : ImageTask(config, data, comm), control_(*comm.world->control()) {}
  Evaluation evaluate(const ReadParameters& read, const CheckStop& check_stop) override {
    control_.stop_requested(true);
    return ImageTask::evaluate(read, check_stop);
  }

 private:
  RunControl& control_;
};

// A resumed run repeats the evaluation with the statistics of each worker, because the mean of seven equal values may
// round.
TEST(ImageTrainer, ARepeatedEvaluationHasTheSameBits) {
  const ImageData data = make_data();
  const TempFolder folder;
  const auto train_in = [&](const std::string& run_dir, const std::string& resume, bool stops) {
    return printed({7, 1}, [&](ImageConfig& config, Communicator& comm, Progress& progress) {
      config.batch = 1;
      config.max_steps = 3;
      config.ema.decay = 0.9;
      config.run_dir = folder / run_dir;
      config.resume = resume;
      if (stops) run(config, StoppedTask(config, data, comm), comm, progress);
      else run(config, ImageTask(config, data, comm), comm, progress);
    });
  };
  train_in("whole", "", false);
  EXPECT_THAT(train_in("stopped", "", true), HasSubstr("the evaluation after step 3 is abandoned"));
  const auto weights = load_safetensors(folder / "stopped/weights.safetensors");
  const auto saved = load_safetensors(folder / "stopped/checkpoints/step-3/model.safetensors");
  EXPECT_EQ(saved.size(), weights.size());
  for (const auto& [name, values] : weights)  // running statistics are the mean over the workers
    EXPECT_TRUE(saved.at(name).to_vector<float>() == values.to_vector<float>()) << name;
  EXPECT_THAT(train_in("stopped", "auto", false), HasSubstr("continues after step 3"));
  for (const char* file : {"/weights.safetensors", "/ema.safetensors"})
    EXPECT_TRUE(read(folder / ("stopped" + std::string(file))) == read(folder / ("whole" + std::string(file)))) << file;
}

class WarningDataset : public data::InMemoryDataset {
 public:
  WarningDataset(const data::RawImages& images, std::vector<std::string> warnings)
      : InMemoryDataset(images, {.mean = {0.5f}, .std = {0.25f}}), warnings_(std::move(warnings)) {}
  std::vector<std::string> warnings() const override { return warnings_; }

 private:
  std::vector<std::string> warnings_;
};

// Ranks 0 and 1 share a dataset, like threads. Ranks 2 and 3 have their own datasets, like processes.
std::string output_with_warnings(const std::vector<std::vector<std::string>>& of_sources) {
  data::RawImages images{Shape{8, 8, 1}, 2, std::vector<uint8_t>(16 * 64), {}};
  for (size_t i = 0; i < images.pixels.size(); ++i) images.pixels[i] = static_cast<uint8_t>(i * 37 % 251);
  for (int32_t i = 0; i < 16; ++i) images.labels.push_back(i % 2);
  std::vector<ImageData> data;
  for (const std::vector<std::string>& warnings : of_sources)
    data.push_back({std::make_shared<WarningDataset>(images, warnings),
                    std::make_shared<WarningDataset>(images, std::vector<std::string>{})});
  return printed({2, 2}, [&](ImageConfig& config, Communicator& comm, Progress& progress) {
    config.max_steps = 1;
    run(config, ImageTask(config, data[static_cast<size_t>(std::max(comm.rank - 1, 0))], comm), comm, progress);
  });
}

TEST(ImageTrainer, ReportsCorruptFilesOfAllRanksOnce) {
  EXPECT_THAT(output_with_warnings({{"b.jpg: is corrupt"}, {}, {"a.jpg: is corrupt", "b.jpg: is corrupt"}}),
              HasSubstr("\ncorrupt file a.jpg: is corrupt\ncorrupt file b.jpg: is corrupt\ndone in "));
  EXPECT_THAT(output_with_warnings({{}, {"3", "1", "5"}, {"2", "6", "4"}}),
              HasSubstr("\ncorrupt file 4\ncorrupt file 5\nand 1 more corrupt file\ndone in "));
  EXPECT_THAT(output_with_warnings({{}, {}, {}}), testing::Not(HasSubstr("corrupt")));
}

}  // namespace image_trainer_test
}  // namespace godwit::apps
