// Runs that cannot continue, or whose folder belongs to another run. The programs are run from the command line.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "tests/apps/programs/train_gpt.h"
#include "tests/apps/programs/train_resnet.h"

namespace godwit {
namespace resume_refusals_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::EndsWith, ::testing::HasSubstr, ::testing::StartsWith;

class ResumeRefusals : public TrainResnet {
 protected:
  std::string checkpoints() const { return (run_dir() / "checkpoints").string(); }
};

class ResumeRefusalsOfGpt : public TrainGpt {};

TEST_F(ResumeRefusals, ARenamedCheckpoint) {
  ASSERT_EQ(train("--optimizer sgdm --batch 4 --threads 1 --max-steps 4 --checkpoint-every 2").exit_code, 0);
  fs::rename(checkpoints() + "/step-2", checkpoints() + "/step-9");
  const Outcome outcome = train("", "--resume run");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "train_resnet: run/checkpoints/step-9: was saved after step 2; rename this folder to step-2, "
                         "or remove it\n");
  fs::rename(checkpoints() + "/step-9", checkpoints() + "/step-2");
  EXPECT_EQ(train("", "--resume run").exit_code, 0);
}

// With --resume auto, the options come from the command line. A run without a checkpoint would start anew there.
TEST_F(ResumeRefusals, ARunOfAnotherProgram) {
  ASSERT_EQ(train("--optimizer sgdm").exit_code, 0);
  json config = json::parse(read_file(run_dir() / "config.json"));
  EXPECT_EQ(config["program"], "train_resnet");
  config["program"] = "train_gpt";
  write_file(run_dir() / "config.json", config.dump());
  const std::string metrics = read_file(run_dir() / "metrics.jsonl");
  for (const bool saved : {true, false}) {
    if (!saved) fs::remove_all(checkpoints());
    for (const char* flags : {"--resume run", "--data data --run-dir run --resume auto --optimizer sgdm"}) {
      const Outcome outcome = train("", flags);
      EXPECT_EQ(outcome.exit_code, 2);
      EXPECT_EQ(outcome.err, "train_resnet: run/config.json: was written by train_gpt, and train_resnet cannot read "
                             "it; use train_gpt\n");
      EXPECT_EQ(read_file(run_dir() / "config.json"), config.dump());
      EXPECT_EQ(read_file(run_dir() / "metrics.jsonl"), metrics);
    }
  }
}

// With and without a checkpoint. The remedy of the message, to remove the file, works. A file that cannot be read is
// not an error of the command, because its disk may come back.
TEST_F(ResumeRefusals, AnUnreadableConfiguration) {
  const std::string flags = "--optimizer sgdm --resume auto";
  const fs::path file = run_dir() / "config.json";
  for (const char* at_end : {"true", "false"}) {
    fs::remove_all(run_dir());
    const std::string all = flags + " --set checkpoint.at_end=" + at_end;
    ASSERT_EQ(train(all).exit_code, 0);
    const std::string config = read_file(file), metrics = read_file(run_dir() / "metrics.jsonl");
    const auto refused = [&](const std::string& reason, int exit_code) {
      const Outcome outcome = train(all);
      EXPECT_EQ(outcome.exit_code, exit_code) << reason;
      EXPECT_THAT(outcome.err, StartsWith("train_resnet: run/config.json" + reason));
      EXPECT_THAT(outcome.err, EndsWith("; restore this file of the run, or remove it: --resume auto then reads all "
                                        "options from the command line\n"));
      EXPECT_EQ(read_file(run_dir() / "metrics.jsonl"), metrics) << reason;
      EXPECT_TRUE(fs::exists(fs::symlink_status(file))) << reason;
      fs::remove_all(file);
    };
    for (const std::string& damaged : {std::string(), config.substr(0, config.size() / 2)}) {
      write_file(file, damaged);
      refused(": is not valid JSON: ", 2);
    }
    write_file(file, "[1]");
    refused(": expects a JSON object {…}, got ", 2);
    fs::create_directory(file);
    refused(": is a folder", 1);
    fs::create_symlink("lost", file);
    refused(": cannot be read (No such file or directory)", 1);
    if (::geteuid() != 0) {  // the administrator may read every file
      write_file(file, config);
      fs::permissions(file, fs::perms::none);
      refused(": cannot be read (Permission denied)", 1);
    }
    const Outcome outcome = train(all + " --max-steps 5");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
}

// The disk of the file may come back. A file that does not exist is an error of the command.
TEST_F(ResumeRefusals, AnUnreadableFileOfConfig) {
  fs::create_symlink("lost", folder_ / "flags.json");
  const std::string flags = "--run-dir run --config ";
  EXPECT_EQ(train("--resume auto", flags + "flags.json").exit_code, 1);
  EXPECT_EQ(train("", flags + "flags.json").exit_code, 2);
  EXPECT_EQ(train("--resume auto", flags + "none.json").exit_code, 2);
  EXPECT_EQ(train("--resume auto", flags + "data").exit_code, 2) << "a folder";
  if (::geteuid() == 0) return;  // the administrator may read every folder
  write_file(folder_ / "closed/flags.json", "{}");
  fs::permissions(folder_ / "closed", fs::perms::none);
  EXPECT_EQ(train("--resume auto", flags + "closed/flags.json").exit_code, 1);
  fs::permissions(folder_ / "closed", fs::perms::owner_all);
}

// Without a checkpoint, the run would start anew and replace the other run. Other changed options are no reason.
TEST_F(ResumeRefusals, AFolderOfAnotherNetworkWithoutACheckpoint) {
  const std::string flags = "--optimizer sgdm --set checkpoint.at_end=false --resume auto ";
  ASSERT_EQ(train(flags).exit_code, 0);
  const std::string config = read_file(run_dir() / "config.json"), metrics = read_file(run_dir() / "metrics.jsonl");
  const Outcome outcome = train(flags + "--model resnet32");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.err,
            "train_resnet: run/config.json: is of a run with another network: model.name \"resnet32\" (was "
            "\"resnet20\"); use the values of that run, or start a new run in another folder\n");
  EXPECT_EQ(read_file(run_dir() / "config.json"), config);
  EXPECT_EQ(read_file(run_dir() / "metrics.jsonl"), metrics);
  EXPECT_FALSE(fs::exists(run_dir() / "metrics.old.jsonl"));
  const Outcome anew = train(flags + "--lr 0.01 --batch 8 --set model.zero_init_residual=false");
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(anew.out, HasSubstr("notice: the run starts at step 1, because it has no complete checkpoint"));
  EXPECT_EQ(read_file(run_dir() / "metrics.old.jsonl"), metrics);
}

// The number of heads changes what the network computes, but no shape of a parameter.
TEST_F(ResumeRefusalsOfGpt, AnotherNumberOfHeads) {
  done("--max-steps 2");
  const std::string metrics = read_file(run_dir() / "metrics.jsonl");
  for (const char* base : {"--resume run", "--run-dir run --resume auto --data text.txt --context 16 --batch 4 "
                                           "--set model.n_layer=2 --set model.n_embd=16"}) {
    const Outcome outcome = train("--max-steps 3 --set model.n_head=4", base);
    EXPECT_EQ(outcome.exit_code, 2) << base;
    EXPECT_EQ(outcome.err,
              "train_gpt: run/config.json: is of a run with another network: model.n_head 4 (was 2); use the values "
              "of that run, or start a new run in another folder\n");
    EXPECT_EQ(read_file(run_dir() / "metrics.jsonl"), metrics) << base;
  }
  const Outcome same = train("--max-steps 3 --set model.n_head=2 --set model.dropout=0.1", "--resume run");
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.out, HasSubstr("notice: changed since the run was saved: max_steps 3 (was 2), model.dropout 0.1"));
}

// The saved run has no averages. Averages that began at the resume would contain the random initial parameters.
TEST_F(ResumeRefusalsOfGpt, AveragedWeightsThatTheSavedRunDoesNotHave) {
  done("--max-steps 2");
  for (const char* flags : {"--max-steps 3 --set ema.decay=0.9", "--max-steps 3 --set ema.decay=0.9 --nodes 2"}) {
    const Outcome outcome = train(flags, "--resume run");
    EXPECT_EQ(outcome.exit_code, 1) << flags;
    EXPECT_THAT(outcome.err, HasSubstr("values of extra/ema")) << flags;
    EXPECT_THAT(outcome.err, HasSubstr("; resume with the options of the saved run")) << flags;
  }
}

// The stored errors of LoCo are codes in units of a scale.
TEST_F(ResumeRefusals, ErrorsOfLocoInOtherUnits) {
  const auto refused = [&](const std::string& flags, const std::string& what) {
    const Outcome outcome = train("--max-steps 4 " + flags, "--resume run");
    EXPECT_NE(outcome.exit_code, 0) << flags;
    EXPECT_THAT(outcome.err, HasSubstr("loco: the saved errors have " + what)) << flags;
  };
  const std::string flags = "--exchange loco --set exchange.saturation_limit=1 --batch 16 --max-steps 2 ";
  ASSERT_EQ(train(flags + "--set exchange.scale=2^12").exit_code, 0);
  refused("--set exchange.scale=2^10", "scale 4096, this run has 1024 (0: auto); resume with the exchange options");
  refused("--set exchange.error_scale=2", "error_scale 4, this run has 2");
  EXPECT_EQ(train("--max-steps 4 --set exchange.block_size=64", "--resume run").exit_code, 0) << "not read";
  fs::remove_all(run_dir());
  ASSERT_EQ(train(flags).exit_code, 0);
  refused("--set exchange.scale=2^10", "scale 0, this run has 1024");
  refused("--set exchange.block_size=2048", "block_size 1024, this run has 2048");
  EXPECT_THAT(train("--max-steps 4 --set exchange.bits=1", "--resume run").err,
              HasSubstr("loco: the scales were saved with 4 bits, this run has 1; resume with the exchange options"));
  EXPECT_EQ(train("--max-steps 4 --set exchange.bits=8", "--resume run").exit_code, 0) << "the same scales";
}

TEST_F(ResumeRefusals, MomentsOfOtherDecayRates) {
  for (const char* optimizer : {"one_bit_adam", "one_bit_lamb"}) {
    fs::remove_all(run_dir());
    ASSERT_EQ(train(std::string("--batch 16 --max-steps 2 --optimizer ") + optimizer).exit_code, 0);
    EXPECT_THAT(train("--max-steps 4 --set optimizer.beta2=0.9", "--resume run").err,
                HasSubstr("optimizer.beta2 is 0.9 (was 0.999), but frozen means of the saved run are corrected with"));
    EXPECT_EQ(train("--max-steps 4 --set optimizer.eps=1e-6", "--resume run").exit_code, 0);
  }
}

TEST_F(ResumeRefusals, RunsThatCannotContinue) {
  const auto refused = [&](const std::string& flags, const std::string& base, const std::string& what) {
    const Outcome outcome = train(flags, base);
    EXPECT_NE(outcome.exit_code, 0) << flags;
    EXPECT_THAT(outcome.err, HasSubstr(what)) << flags;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  };
  refused("", "--resume nowhere",
          "nowhere/config.json: cannot be read (No such file or directory); "
          "--resume expects the folder of a run");
  refused("--resume auto", "--data data", "--run-dir");
  refused("--resume other", "--run-dir run", "leave run_dir run out");
  refused("--resume other", "--set run_dir=run", "leave run_dir run out");
  ASSERT_EQ(train("--optimizer adamw --set checkpoint.at_end=false").exit_code, 0);
  for (const char* resume : {"--resume run", "--set resume=run", "--set resume=run --set run_dir=run"})
    refused("", resume, "run/checkpoints: has no checkpoint; a run saves one after its last step");
  fs::remove_all(run_dir());
  ASSERT_EQ(train("--optimizer adamw --checkpoint-every 2 --batch 16").exit_code, 0);
  const std::string before = read_file(run_dir() / "metrics.jsonl");
  refused("", "--resume run/checkpoints/step-4", "is a checkpoint; give the folder of its run");
  refused("--optimizer sgdm", "--resume run", "was saved by a run with \"adamw, dense, none\"");
  refused("--nodes 3", "--resume run",
          "the run in run has 16 samples per step, which 3 workers cannot divide equally; "
          "continue with a number of workers that divides 16");
  refused("--batch 8", "--resume run",
          "16 steps per epoch, this run has 32; changed since the run was saved: batch 8 (was 16); resume with");
  refused("--max-steps 3", "--resume run", "is at step 4, beyond the 3 steps of this run");
  refused("--model resnet18 --set model.small_stem=true", "--resume run", "model.name \"resnet18\" (was \"resnet20\")");
  EXPECT_EQ(read_file(run_dir() / "metrics.jsonl"), before) << "a refusal leaves the run as it is";
  write_file(run_dir() / "checkpoints/step-4/manifest.json", "{}");
  refused("", "--resume run", "has no \"version\"");
}

}  // namespace resume_refusals_test
}  // namespace godwit
