// train_resnet under signals, closed streams, and slow or full disks. No run may lose its weights.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "optim/checkpoint.h"
#include "tests/apps/programs/train_resnet.h"

namespace godwit {
namespace train_resnet_faults_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

TEST_F(TrainResnet, ClosedStreamsDoNotLeakIntoFiles) {
  const Outcome outcome =
      train("--data data --run-dir run --max-steps 4 --batch 8 --set log_every=1", "", "<&- >&- 2>&-");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(metrics().size(), 5u) << "four steps and an evaluation, each a JSON object";
}

// The running program; it does not end by itself.
class EndlessRun {
 public:
  EndlessRun(const fs::path& folder, std::vector<std::string> flags) : folder_(folder) {
    std::vector<std::string> words{"train_resnet", "--data", "data", "--run-dir", "run", "--epochs", "100000"};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    child_ = fork();
    if (child_ == 0) {
      ::signal(SIGHUP, SIG_DFL);  // the tests may run under nohup
      fs::current_path(folder_);
      (void)!freopen("out", "w", stdout);
      (void)!freopen("err", "w", stderr);
      execv(GODWIT_BINARY_DIR "/train_resnet", arguments.data());
      _exit(127);
    }
  }

  void wait_for_a_step() const {
    const fs::path metrics = folder_ / "run/metrics.jsonl";
    for (int i = 0; i < 600 && (!fs::exists(metrics) || fs::file_size(metrics) == 0); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }

  // The exit code after a signal; -1 if the program does not exit within 20 s or is killed by the signal.
  int ends_after(int signal) const {
    kill(child_, signal);
    int status = 0;
    for (int i = 0; i < 400 && waitpid(child_, &status, WNOHANG) == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (i < 399) continue;
      kill(child_, SIGKILL);
      waitpid(child_, &status, 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  fs::path folder_;
  pid_t child_;
};

// All workers stop after the same step and save their state, including sharded masters and averages.
TEST_F(TrainResnet, SigintSavesTheWeightsAndNamesTheRunDirectory) {
  const EndlessRun run(folder_,
                       {"--batch", "8", "--nodes", "2", "--set", "log_every=1", "--optimizer", "adamw", "--set",
                        "ema.decay=0.9", "--set", "exchange.sharding=zero2", "--set", "exchange.parameter_wire=bf16"});
  run.wait_for_a_step();
  EXPECT_EQ(run.ends_after(SIGINT), 130);
  EXPECT_EQ(read_file(folder_ / "err"),
            "SIGINT: stopping after the current step or batch of an evaluation to save the weights; a second signal, "
            "at least 1 s later, ends the run at once\n");
  const std::vector<json> lines = metrics();
  const json last = lines.back(), before = lines[lines.size() - 2];
  EXPECT_EQ(last, (json{{"step", before["step"]}, {"epoch", before["epoch"]}, {"interrupted", true}}));
  const std::string out = read_file(folder_ / "out");
  EXPECT_THAT(out, HasSubstr(": step " + last["step"].dump() + " of 1600000, peak memory"));
  EXPECT_THAT(out, HasSubstr("configuration are in run; --resume run continues the run\n"));
  EXPECT_EQ(json::parse(read_file(run_dir() / "summary.json"))["steps"], last["step"]);
  EXPECT_NE(read_file(run_dir() / "ema.safetensors"), read_file(run_dir() / "weights.safetensors"));
  fs::rename(run_dir(), folder_ / "first");
  EXPECT_EQ(train("--init-weights first/weights.safetensors --max-steps 1").exit_code, 0);
}

// Workers stop after the same step even with local steps, accumulation and no logging.
TEST_F(TrainResnet, SignalsTakeEffectAtTheNextStep) {
  for (const auto& [signal, code] : {std::pair{SIGTERM, 143}, {SIGHUP, 129}}) {
    const EndlessRun run(
        folder_, {"--batch", "2", "--nodes", "3", "--set", "log_every=1000000000", "--optimizer", "zero_one_adam",
                  "--set", "optimizer.warmup_steps=1", "--set", "optimizer.intervals=fixed", "--set",
                  "optimizer.max_interval=4", "--accumulation", "2", "--check-replicas", "4"});
    run.wait_for_a_step();
    EXPECT_EQ(run.ends_after(signal), code) << read_file(folder_ / "err");
    EXPECT_TRUE(fs::exists(run_dir() / "weights.safetensors"));
    EXPECT_EQ(metrics().back().value("interrupted", false), true);
    fs::remove_all(run_dir());
  }
}

TEST_F(TrainResnet, ContinuesIfItsOutputIsClosed) {
  const std::string flags = "--batch 8 --nodes 2 --set log_every=1",
                    note = "; the run continues; its metrics are in the ";
  int closed[2];
  ASSERT_EQ(pipe(closed), 0);
  close(closed[0]);
  const std::string streams = ">&" + std::to_string(closed[1]) + " 2>err </dev/null";
  for (const auto& [to, error] : {std::pair<std::string, std::string>{streams, "Broken pipe"},
                                  {">/dev/full 2>err </dev/null", "No space left on device"}}) {
    const Outcome outcome = train(flags, base_, to);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "output cannot be written (" + error + ")" + note + "run directory\n");
    EXPECT_EQ(metrics().size(), 5u) << "four steps and an evaluation";
    EXPECT_TRUE(fs::exists(run_dir() / "weights.safetensors"));
    fs::remove_all(run_dir());
  }
  close(closed[1]);
}

// The other workers wait for the writing worker.
TEST_F(TrainResnet, ASlowDiskDoesNotTimeOut) {
  environment_ = faulty_system("FAULTY_SLOW=/config.json 2500");
  const Outcome outcome = train("--batch 8 --nodes 2 --set timeout_s=1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(run_dir() / "weights.safetensors"));
}

TEST_F(TrainResnet, AFullDiskForMetricsDoesNotLoseWeights) {
  environment_ = faulty_system("FAULTY_FULL=/metrics.jsonl 1100 1000000");
  const Outcome outcome = train("--batch 8 --nodes 2 --max-steps 12 --set log_every=1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("run/metrics.jsonl: cannot be written (No space left on device); free space there or "
                        "choose another --run-dir; the weights after step "));
  EXPECT_THAT(outcome.err, HasSubstr(" of 12 are in run\n"));
  EXPECT_TRUE(fs::exists(run_dir() / "weights.safetensors"));
  const std::string text = read_file(run_dir() / "metrics.jsonl");
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.back(), '\n');
  EXPECT_FALSE(metrics().empty()) << "each line must be a JSON object";
}

// Rank 1 cannot write its part of the first checkpoint.
TEST_F(TrainResnet, AFullDiskCostsOneCheckpoint) {
  environment_ = faulty_system("FAULTY_FULL=/step-2.partial/rank-00001 1000 1");
  const Outcome outcome = train("--optimizer birder --batch 8 --nodes 2 --checkpoint-every 2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("notice: no checkpoint of step 2: rank 1: "));
  EXPECT_THAT(outcome.out, HasSubstr(": cannot be written: No space left on device; the earlier checkpoints are kept"));
  EXPECT_FALSE(fs::exists(run_dir() / "checkpoints/step-2"));
  EXPECT_FALSE(fs::exists(run_dir() / "checkpoints/step-2.partial"));
  EXPECT_TRUE(fs::exists(run_dir() / "checkpoints/step-4/manifest.json"));
}

// The disk has no room for the second checkpoint.
TEST_F(TrainResnet, TooLittleDiskCostsOneCheckpoint) {
  environment_ = faulty_system("FAULTY_ROOM=/step-4.partial 1");
  const Outcome outcome =
      train("--optimizer birder --batch 8 --nodes 2 --max-steps 6 --checkpoint-every 2 --set checkpoint.keep=1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const size_t at = outcome.out.find("notice: no checkpoint of step 4: rank 0: run/checkpoints/step-4.partial: needs ");
  ASSERT_NE(at, std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(" MiB, but the disk has 1 MiB left; the earlier checkpoints are kept\n", at),
            std::string::npos)
      << outcome.out;
  EXPECT_EQ(outcome.out.find("no checkpoint of step ", at + 30), std::string::npos) << outcome.out;
  EXPECT_FALSE(fs::exists(run_dir() / "checkpoints/step-4"));
  EXPECT_FALSE(fs::exists(run_dir() / "checkpoints/step-4.partial"));
  EXPECT_TRUE(fs::exists(run_dir() / "checkpoints/step-6/manifest.json"));
}

// With room for the first checkpoint only, the run continues from this checkpoint.
TEST_F(TrainResnet, TooLittleDiskKeepsTheLastGoodCheckpoint) {
  environment_ = faulty_system("FAULTY_ROOM=/step-4.partial 1");
  const std::string flags =
      "--optimizer birder --batch 8 --nodes 2 --checkpoint-every 2 --set checkpoint.keep=1 --set log_every=1";
  ASSERT_EQ(train(flags).exit_code, 0);
  const std::string weights = read_file(run_dir() / "weights.safetensors");
  EXPECT_TRUE(fs::exists(run_dir() / "checkpoints/step-2/manifest.json"));
  EXPECT_FALSE(fs::exists(run_dir() / "checkpoints/step-4"));
  environment_.clear();
  const Outcome outcome = train("", "--resume run");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("continues after step 2: "));
  EXPECT_TRUE(read_file(run_dir() / "weights.safetensors") == weights);
}

// The run is killed while it removes its first checkpoint.
TEST_F(TrainResnet, AnInterruptedRemovalLeavesNoDamagedCheckpoint) {
  const std::string flags = "--batch 8 --nodes 2 --checkpoint-every 2 --set checkpoint.keep=1 --resume auto";
  const fs::path checkpoints = run_dir() / "checkpoints";
  for (const char* files : {"1", "2", "3"}) {
    fs::remove_all(run_dir());
    environment_ = faulty_system(std::string("FAULTY_KILL=/checkpoints/step-2 ") + files);
    EXPECT_EQ(train(flags).exit_code, 137);
    environment_.clear();
    EXPECT_TRUE(fs::exists(checkpoints / "step-4/manifest.json"));
    for (const auto& [step, folder] : checkpoints_in(checkpoints)) {
      const json manifest = json::parse(read_file(fs::path(folder) / "manifest.json"));
      for (const auto& [name, entry] : manifest["files"].items())
        EXPECT_TRUE(fs::exists(fs::path(folder) / name)) << folder << " has a manifest, but no " << name;
    }
    const Outcome outcome = train(flags + " --max-steps 6");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints), fs::directory_iterator()), 1);
  }
}

// While the second checkpoint is written, a folder with the temporary name of the first one appears.
TEST_F(TrainResnet, ARemovalIsNotHinderedByAPartialCheckpoint) {
  const std::string flags = "--batch 8 --checkpoint-every 2 --set checkpoint.keep=1";
  environment_ = "sh -c '( until [ -e run/checkpoints/step-4.partial/rank-00000.safetensors.written.new ] || "
                 "! kill -0 $$; do sleep 0.01; done; mkdir run/checkpoints/step-2.partial; "
                 "touch run/checkpoints/step-2.partial/file ) >/dev/null 2>&1 & exec \"$@\"' sh " +
                 faulty_system("FAULTY_SLOW=/step-4.partial/rank-00000.safetensors 1000");
  const Outcome outcome = train(flags);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(run_dir() / "checkpoints/step-4/manifest.json"));
  for (const char* removed : {"step-2", "step-2.partial"})
    EXPECT_FALSE(fs::exists(run_dir() / "checkpoints" / removed)) << removed;
}

// A run that is still writing to the folder is not disturbed.
TEST_F(TrainResnet, AFolderInUseCannotBeResumed) {
  const EndlessRun run(folder_, {"--batch", "8", "--nodes", "2", "--set", "log_every=1", "--optimizer", "birder",
                                 "--checkpoint-every", "5"});
  for (int i = 0; i < 600 && !fs::exists(run_dir() / "checkpoints/step-5/manifest.json"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  environment_ = "timeout 30";
  for (const char* base :
       {"--resume run", "--data data --run-dir run --resume auto --optimizer birder --batch 8 --nodes 2"}) {
    const Outcome outcome = train("", base);
    EXPECT_EQ(outcome.exit_code, 1) << base;
    EXPECT_EQ(
        outcome.err,
        "train_resnet: rank 0: run directory run: another run is writing there; choose another with --run-dir DIR\n");
  }
  EXPECT_EQ(run.ends_after(SIGINT), 130);
  int64_t step = 0;
  for (const json& line : metrics())
    if (line.contains("loss")) {
      EXPECT_EQ(line["step"], ++step);
    }
  EXPECT_GT(step, 5);
}

// Prefix of a command, which then runs with a read-only file system at `folder`.
std::string read_only(const std::string& folder, const std::string& how) {
  return "unshare -m sh -c '" + how + " " + folder + " && exec \"$@\"' sh ";
}

TEST_F(TrainResnet, AReadOnlyFolderIsRefused) {
  if (std::system((read_only("/mnt", "mount -t tmpfs -o ro none") + "true >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "this user cannot mount a file system";
  fs::create_directories(folder_ / "ro");
  environment_ = read_only("ro", "mount -t tmpfs -o ro none");
  Outcome outcome = train("--run-dir ro/new");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err,
            "train_resnet: run directory ro/new: cannot be created (Read-only file system); choose another with "
            "--run-dir DIR\n");
  outcome = train("--run-dir ro");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err,
            "train_resnet: run directory ro: cannot be written (Read-only file system); choose another with "
            "--run-dir DIR\n");
  // Only the checkpoints cannot be written: the run continues without them.
  fs::create_directories(run_dir() / "checkpoints");
  environment_ = read_only("run/checkpoints", "mount -t tmpfs -o ro none");
  outcome = train("--optimizer birder --batch 8 --nodes 2 --checkpoint-every 2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(
      outcome.out.find("notice: no checkpoint of step 2: rank 0: run/checkpoints/step-2.partial: cannot be created "
                       "(Read-only file system); the earlier checkpoints are kept"),
      std::string::npos)
      << outcome.out;
  EXPECT_TRUE(fs::exists(run_dir() / "weights.safetensors"));
}

// Training goes on while a checkpoint is written; the next one and the end wait for it.
TEST_F(TrainResnet, ASlowDiskDelaysOnlyTheNextCheckpoint) {
  for (const auto& [every, slow_step] : {std::pair{4, 4}, std::pair{10, 12}}) {
    environment_ =
        faulty_system(detail::concat("FAULTY_SLOW=/step-", slow_step, ".partial/rank-00001.safetensors 2000"));
    const Outcome outcome = train(
        "--optimizer birder --batch 8 --nodes 2 --max-steps 12 --set log_every=1 "
        "--set checkpoint.keep=9 --checkpoint-every " +
        std::to_string(every));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(fs::exists(run_dir() / detail::concat("checkpoints/step-", slow_step, "/manifest.json")));
    double waited = -1;
    const size_t line = outcome.out.find(detail::concat("checkpoint of step ", slow_step, " "));
    ASSERT_NE(line, std::string::npos) << outcome.out;
    std::sscanf(outcome.out.c_str() + outcome.out.find("training waited ", line), "training waited %lf", &waited);
    EXPECT_GT(waited, 0.3) << outcome.out;
    for (const json& metric : metrics())
      EXPECT_TRUE(!metric.contains("step_s") || metric["step"] > 8 || metric["step_s"] < 1.5) << metric;
    fs::remove_all(run_dir());
  }
}

TEST_F(TrainResnet, WritingWeightsIsRetriedAndThenRedirected) {
  const std::string flags = "--batch 8 --nodes 2 --set ema.decay=0.9 --set timeout_s=0.5";
  environment_ = faulty_system("FAULTY_FULL=/weights.safetensors 100000 1");
  const Outcome again = train(flags);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("No space left on device; retrying every 0.5 s for 0.5 s; free space there\n"));
  const std::string weights = read_file(run_dir() / "weights.safetensors"),
                    ema = read_file(run_dir() / "ema.safetensors");
  EXPECT_GT(weights.size(), 1'000'000u);
  fs::remove_all(run_dir());

  fs::create_directory(folder_ / "tmp");
  environment_ = faulty_system("FAULTY_FULL=/run/weights.safetensors 100000 1000000") + " TMPDIR='" +
                 (folder_ / "tmp").string() + "'";
  const Outcome elsewhere = train(flags);
  EXPECT_EQ(elsewhere.exit_code, 1);
  const size_t place = elsewhere.err.find("; the weights after step 4 of 4 are in ");
  ASSERT_NE(place, std::string::npos) << elsewhere.err;
  const size_t begin = elsewhere.err.find("/tmp/godwit-weights-");
  const fs::path folder = folder_ / elsewhere.err.substr(begin + 1, elsewhere.err.find('\n', begin) - begin - 1);
  EXPECT_EQ(read_file(folder / "weights.safetensors"), weights);
  EXPECT_EQ(read_file(folder / "ema.safetensors"), ema);
  for (const auto& file : fs::directory_iterator(run_dir()))
    EXPECT_EQ(file.path().string().find(".tmp"), std::string::npos) << file.path();
}

}  // namespace train_resnet_faults_test
}  // namespace godwit
