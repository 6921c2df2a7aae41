// Signals during evaluations of train_gpt.
#include "tests/apps/programs/train_gpt.h"
#include "tests/mpirun.h"

namespace godwit {
namespace train_gpt_evaluation_test {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

// Evaluations of several seconds, after step 2 and after the last step. Workers gather parameters for each batch.
class TrainGptEvaluation : public TrainGpt {
 protected:
  void SetUp() override {
    TrainGpt::SetUp();
    write_file(folder_ / "long.txt", story(1000));
  }
  std::pair<std::string, std::string> remains() const {
    return {results(metrics()), read_file(run_dir() / "model/model.safetensors")};
  }
  const std::string flags_ =
      "--optimizer adamw --set exchange.sharding=zero3 --set ema.decay=0.9 --set data.valid=long.txt "
      "--set evaluate_every=2 --set log_every=1 ";
};

// The run stops before the next batch and saves; the resumed run repeats the evaluation.
TEST_F(TrainGptEvaluation, IsAbandonedAfterAStopSignal) {
  done(flags_ + "--nodes 2");
  const auto whole = remains();
  for (const auto& [lines, step] : {std::pair{2, 2}, {5, 4}}) {
    fs::remove_all(run_dir());
    environment_ = signal_after(lines, "TERM");
    const Outcome stopped = train(flags_ + "--nodes 2");
    environment_.clear();
    EXPECT_EQ(stopped.exit_code, 143) << stopped.err;
    const std::string message = "the evaluation after step " + std::to_string(step) + " is abandoned; --resume repeats";
    EXPECT_THAT(stopped.out, HasSubstr(message));
    EXPECT_EQ(metrics().size(), static_cast<size_t>(lines) + 1) << "no figures, and a last line";
    EXPECT_EQ(metrics().back().value("interrupted", false), true);
    const Outcome resumed = train("", "--resume run");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_TRUE(remains() == whole) << "stopped after step " << step;
  }
}

TEST_F(TrainGptEvaluation, IsAbandonedByAllRanksAfterAStopSignalToOne) {
  if (const std::string reason = no_mpirun(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string program = "'" GODWIT_SHELL_BINARY_DIR "/train_gpt' " + base_ + " " + flags_;
  const MpiOutcome outcome = mpirun(1, program + " : -np 1 " + signal_after(2, "TERM") + program, scratch_);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("the evaluation after step 2 is abandoned"));
  EXPECT_TRUE(fs::exists(run_dir() / "checkpoints/step-2/manifest.json")) << outcome.out << outcome.err;
}

TEST_F(TrainGptEvaluation, IsFollowedByARequestedCheckpoint) {
  environment_ = signal_after(5, "USR1");
  done(flags_ + "--nodes 2 --set checkpoint.at_end=false");
  environment_.clear();
  EXPECT_TRUE(fs::exists(run_dir() / "checkpoints/step-4/manifest.json"));
}

// samples.txt is a folder, so reading it throws an exception of the standard library. The weights are saved.
TEST_F(TrainGptEvaluation, SamplesThatCannotBeRead) {
  done("--optimizer adamw --max-steps 2");
  const std::string weights = read_file(run_dir() / "model/model.safetensors");
  fs::remove(run_dir() / "samples.txt");
  fs::create_directory(run_dir() / "samples.txt");
  const Outcome outcome = train("--max-steps 4", "--resume run");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("Is a directory"));
  EXPECT_THAT(outcome.err, HasSubstr("; the weights after step 4 of 4 are in run"));
  EXPECT_NE(read_file(run_dir() / "model/model.safetensors"), weights);
}

}  // namespace train_gpt_evaluation_test
}  // namespace godwit
