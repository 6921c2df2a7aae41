// Steps that are skipped or rolled back: jumps of the loss, and gradients that are not finite.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "autograd/ops/scale.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "models/resnet.h"
#include "nn/weights.h"
#include "tests/apps/train/small_image_run.h"

namespace godwit::apps {
namespace skipped_steps_test {

using testing::HasSubstr;
using namespace small_image_run;

// A task whose loss is multiplied by the given factors in some micro-batches of rank 1.
class SpikingTask : public ImageTask {
 public:
  SpikingTask(const ImageConfig& config, const ImageData& data, Communicator& comm, std::map<int64_t, double> factors)
      : ImageTask(config, data, comm), rank_(comm.rank), factors_(std::move(factors)) {}

  std::vector<std::vector<std::vector<float>>> before;  // each micro-batch: values_of() the model
  std::vector<std::vector<float>> evaluated;            // values_of() the model in the last evaluation
  Tensor forwards = Tensor::zeros({1});                 // number of calls of forward(): state that follows the data

  Evaluation evaluate(const ReadParameters& read, const CheckStop& check_stop) override {
    evaluated = values_of(model());
    return ImageTask::evaluate(read, check_stop);
  }
  std::vector<nn::NamedTensor> state() override { return {{"forwards", forwards}}; }
  Forward forward(int64_t micro_batch) override {
    before.push_back(values_of(model()));
    ++*forwards.data<float>();
    Forward result = ImageTask::forward(micro_batch);
    if (const auto found = factors_.find(micro_batch); found != factors_.end() && rank_ == 1)
      result.loss = ops::scale(result.loss, found->second);
    return result;
  }

 private:
  int rank_;
  std::map<int64_t, double> factors_;
};

// The evaluated averages must have decay 0.5 and follow the values task.before[i] for each i in `taken`: the values
// after the steps that were neither skipped nor rolled back.
void expect_averages(SpikingTask& task, const std::vector<size_t>& taken) {
  for (size_t p = 0; p < task.model().parameters().size(); ++p)
    for (size_t i = 0; i < task.evaluated[p].size(); ++i) {
      double average = task.before[0][p][i], step = 0;
      for (const size_t at : taken) {
        ++step;
        average += (1 - std::min(0.5, (1 + step) / (10 + step))) * (task.before[at][p][i] - average);
      }
      ASSERT_NEAR(task.evaluated[p][i], average, 1e-6) << p << ", " << i;
    }
}

double number_after(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  return at == std::string::npos ? NAN : std::stod(text.substr(at + words.size()));
}

// Step 22, in which the loss jumps, is skipped: the parameters stay as after step 21, or return to the checkpoint of
// step 20.
TEST(SkippedSteps, AJumpOfTheLossSkipsTheStepOrRollsBack) {
  const ImageData data = make_data();
  for (const bool birder : {false, true})
    for (const std::string guard : {"skip", "rollback", "off"}) {
      std::stringstream metrics;
      const std::string text = printed({2, 1}, [&](ImageConfig& config, Communicator& comm, Progress& progress) {
        config.batch = 2;
        config.max_steps = 23;
        config.epochs = 100;
        config.spike.guard = guard;
        config.checkpoint.every = "20";
        config.check_replicas = 11;
        config.non_finite = "skip";
        config.clip.norm = 1e6;
        config.log_every = 1;
        config.ema.decay = 0.5;
        if (birder) config.optimizer = "birder";
        SpikingTask task(config, data, comm, {{21, 1000}});
        Trainer(image_program(), config, task, comm).run(progress);
        EXPECT_EQ(task.forwards.item(0), 23) << guard;
        EXPECT_NE(task.before[20], task.before[21]) << guard;
        EXPECT_EQ(task.before[22] == task.before[20], guard == "rollback") << guard << ", rank " << comm.rank;
        EXPECT_EQ(task.before[22] == task.before[21], guard == "skip") << guard << ", rank " << comm.rank;
        task.before.push_back(values_of(task.model()));
        std::vector<size_t> taken(guard == "rollback" ? 20 : guard == "skip" ? 21 : 22);
        std::iota(taken.begin(), taken.end(), 1);
        taken.push_back(23);
        expect_averages(task, taken);
        if (comm.rank == 0) metrics << std::ifstream(config.run_dir + "/metrics.jsonl").rdbuf();
        if (birder || guard != "skip") return;
        config.max_steps = 24, config.resume = "auto";
        run(config, ImageTask(config, data, comm), comm, progress);
      });
      SCOPED_TRACE(guard + text);
      const bool on = guard != "off";
      int64_t step = 0;
      for (std::string line; std::getline(metrics, line);)
        if (const nlohmann::json read = nlohmann::json::parse(line); read.contains("loss")) {
          ++step;
          EXPECT_EQ(read["skipped"], on && step >= 22 ? 1 : 0) << line;
          EXPECT_EQ(read.contains("grad_norm"), !on || step != 22) << line;
          if (on && step == 22) {
            const double loss = read["loss"];
            EXPECT_NEAR(number_after(text, "the loss is "), loss, 1e-3 * loss);
          }
        }
      EXPECT_EQ(step, 23);
      EXPECT_EQ(text.find("step 22 skipped: the loss is ") != std::string::npos, on);
      EXPECT_EQ(text.find("1 of 23 steps were skipped: loss or gradient norm jumped") != std::string::npos, on);
      EXPECT_EQ(text.find("not finite"), std::string::npos);
      EXPECT_EQ(text.find("1 of 24 steps were skipped: loss or gradient norm jumped") != std::string::npos,
                guard == "skip" && !birder);
      EXPECT_EQ(text.find("parameters and optimizer state are restored from ") != std::string::npos,
                guard == "rollback");
      EXPECT_EQ(text.find("checkpoints/step-20\n") != std::string::npos, guard == "rollback");
    }
}

// The limit of the printed steps counts only steps with a gradient that is not finite.
TEST(SkippedSteps, JumpsDoNotHideStepsThatAreNotFinite) {
  const ImageData data = make_data();
  const std::string text = printed({2, 1}, [&](ImageConfig& config, Communicator& comm, Progress& progress) {
    config.batch = 2;
    config.max_steps = 28;
    config.epochs = 100;
    config.spike.guard = config.non_finite = "skip";
    run(config, SpikingTask(config, data, comm, {{21, 1e3}, {22, 1e3}, {23, 1e3}, {24, 1e3}, {25, 1e3}, {26, NAN}}),
        comm, progress);
  });
  EXPECT_THAT(text, HasSubstr("step 27 skipped: the gradient of '"));
  EXPECT_THAT(text, HasSubstr("\n1 of 28 steps were skipped: a gradient was not finite\n"
                              "5 of 28 steps were skipped: loss or gradient norm jumped\n"));
}

// A task that has a folder like a checkpoint in the run directory, whose manifest cannot be examined.
class UnreadableCheckpointTask : public ImageTask {
 public:
  UnreadableCheckpointTask(const ImageConfig& config, const ImageData& data, Communicator& comm)
      : ImageTask(config, data, comm), folder_(config.run_dir + "/checkpoints/step-1") {}
  Forward forward(int64_t micro_batch) override {
    if (micro_batch == 1) {
      std::filesystem::create_directories(folder_);
      std::filesystem::create_symlink("manifest.json", folder_ / "manifest.json");  // a loop
    }
    return ImageTask::forward(micro_batch);
  }

 private:
  std::filesystem::path folder_;
};

TEST(Checkpoints, AFolderWhoseManifestCannotBeExaminedStays) {
  const ImageData data = make_data();
  const std::string text = printed({1, 1}, [&](ImageConfig& config, Communicator& comm, Progress& progress) {
    config.max_steps = 4;
    config.checkpoint.every = "2";
    run(config, UnreadableCheckpointTask(config, data, comm), comm, progress);
    EXPECT_TRUE(std::filesystem::is_symlink(config.run_dir + "/checkpoints/step-1/manifest.json"));
    EXPECT_TRUE(std::filesystem::exists(config.run_dir + "/checkpoints/step-4/manifest.json"));
  });
  EXPECT_THAT(text, HasSubstr("notice: old checkpoints are not removed: "));
}

// A task with a NaN gradient in the second batch of rank 1.
class PoisonedTask : public ImageTask {
 public:
  PoisonedTask(const ImageConfig& config, const ImageData& data, Communicator& comm)
      : ImageTask(config, data, comm), rank_(comm.rank) {}

  std::vector<std::vector<float>> evaluated;  // values_of() the model in the last evaluation

  Evaluation evaluate(const ReadParameters& read, const CheckStop& check_stop) override {
    evaluated = values_of(model());
    return ImageTask::evaluate(read, check_stop);
  }
  Forward forward(int64_t micro_batch) override {
    if (micro_batch == 1) before_ = values_of(model());
    if (micro_batch == 2) {
      EXPECT_EQ(values_of(model()), before_) << "rank " << rank_ << ": the skipped step left a trace";
    }
    Forward result = ImageTask::forward(micro_batch);
    if (micro_batch == 1) {
      EXPECT_NE(values_of(model()), before_) << "a forward pass must change the batch-norm statistics";
    }
    if (micro_batch == 1 && rank_ == 1) result.loss = ops::scale(result.loss, static_cast<double>(NAN));
    return result;
  }

 private:
  int rank_;
  std::vector<std::vector<float>> before_;
};

TEST(SkippedSteps, SkippedStepsRestoreParametersAndStatistics) {
  const ImageData data = make_data();
  const std::string text = printed({3, 1}, [&](ImageConfig& config, Communicator& comm, Progress& progress) {
    config.optimizer = "birder";
    config.max_steps = 4;
    config.check_replicas = 1;
    config.ema.decay = 0.5;
    config.non_finite = "skip";
    EXPECT_TRUE(std::isfinite(*run(config, PoisonedTask(config, data, comm), comm, progress).loss));
  });
  EXPECT_THAT(text, HasSubstr("step 2 skipped: the gradient of '"));
  EXPECT_THAT(text, HasSubstr("is not finite on rank 1"));
  EXPECT_THAT(text, HasSubstr("1 of 4 steps were skipped: a gradient was not finite"));
}

// A task whose loss is always NaN.
class HopelessTask : public ImageTask {
 public:
  using ImageTask::ImageTask;
  Forward forward(int64_t micro_batch) override {
    Forward result = ImageTask::forward(micro_batch);
    result.loss = ops::scale(result.loss, static_cast<double>(NAN));
    return result;
  }
};

// A run ends after 100 skipped steps in a row, also if it was resumed in between.
TEST(SkippedSteps, CountsSkippedStepsInARowAlsoAfterAResume) {
  const ImageData data = make_data();
  printed({1, 1}, [&](ImageConfig& config, Communicator& comm, Progress& progress) {
    config.batch = 1;
    config.epochs = 100;
    config.non_finite = "skip";
    config.resume = "auto";
    config.max_steps = 60;
    run(config, HopelessTask(config, data, comm), comm, progress);
    config.max_steps = 110;
    EXPECT_THAT(error_of([&] { run(config, HopelessTask(config, data, comm), comm, progress); }),
                HasSubstr("step 100: 100 steps in a row were skipped; "));
  });
}

TEST(SkippedSteps, SkippedStepsDoNotChangeAverages) {
  const ImageData data = make_data();
  std::vector<std::vector<std::vector<float>>> averages;
  for (const int64_t steps : {1, 2})  // step 2 is skipped
    printed({2, 1}, [&](ImageConfig& config, Communicator& comm, Progress& progress) {
      config.max_steps = steps;
      config.schedule.name = "constant";
      config.ema.decay = 0.5;
      config.non_finite = "skip";
      PoisonedTask task(config, data, comm);
      Trainer(image_program(), config, task, comm).run(progress);
      if (comm.rank == 0) averages.push_back(task.evaluated);
    });
  EXPECT_EQ(averages[0], averages[1]);
}

}  // namespace skipped_steps_test
}  // namespace godwit::apps
