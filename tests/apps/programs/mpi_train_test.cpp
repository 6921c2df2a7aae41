// train_resnet under mpirun. Results must equal those of a run with threads, and the launcher must determine the
// topology.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "comm/topology.h"
#include "engine/philox.h"
#include "optim/checkpoint.h"
#include "tests/apps/programs/program_test.h"
#include "tests/mpirun.h"

namespace godwit {
namespace mpi_train_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kProgram = "'" GODWIT_SHELL_BINARY_DIR "/train_resnet' ";
constexpr const char* kSmall =
    "--data data --batch 2 --max-steps 3 --set log_every=1 --set eval_batch=4 --check-replicas 2 ";

Bytes idx_bytes(const std::vector<uint8_t>& extents, const Bytes& values) {
  Bytes bytes{0, 0, 8, static_cast<uint8_t>(extents.size())};
  for (uint8_t extent : extents) bytes.insert(bytes.end(), {0, 0, 0, extent});
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

class MpiTrain : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_mpirun(); !reason.empty()) GTEST_SKIP() << reason;
    fs::create_directory(folder_ / "data");
    write_images("train", 64);
    write_images("t10k", 32);
  }

  void write_images(const std::string& prefix, uint8_t count) const {
    RandomStream random(count, Purpose::test);
    Bytes pixels(size_t{count} * 64), labels(count);
    for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(random.below(256));
    for (uint8_t i = 0; i < count; ++i) labels[i] = static_cast<uint8_t>(i % 4);
    write(folder_ / ("data/" + prefix + "-images-idx3-ubyte"), idx_bytes({count, 8, 8}, pixels));
    write(folder_ / ("data/" + prefix + "-labels-idx1-ubyte"), idx_bytes({count}, labels));
  }

  // The metrics without times.
  std::string results(const std::string& run) const {
    std::istringstream lines(text(run + "/metrics.jsonl"));
    std::string kept;
    for (std::string line; std::getline(lines, line);) {
      const json object = json::parse(line);
      for (const auto& [key, value] : object.items())
        if (!key.ends_with("_s")) kept += key + " " + value.dump() + "  ";
      kept += "\n";
    }
    return kept;
  }

  std::string text(const std::string& name) const {
    const Bytes bytes = read(folder_ / name);
    return {bytes.begin(), bytes.end()};
  }

  // Compares losses, evaluation, weights and configuration of a run with processes and a run with threads.
  void expect_same_bits(const Topology& topology, const std::string& flags) const {
    const std::string settings = kSmall + flags + " --nodes " + std::to_string(topology.nodes);
    const std::string local = "cd '" + folder_.str() + "' && " + kProgram + settings + " --run-dir local " +
                              "--workers-per-node " + std::to_string(topology.workers_per_node) + " >out 2>&1";
    ASSERT_EQ(std::system(local.c_str()), 0) << text("out");
    const MpiOutcome outcome = mpirun(topology.world(), kProgram + settings + " --run-dir mpi", folder_);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(results("mpi"), results("local")) << flags;
    EXPECT_EQ(text("mpi/weights.safetensors"), text("local/weights.safetensors")) << flags;
    EXPECT_EQ(text("mpi/config.json"), text("local/config.json")) << "either configuration must repeat both runs";
    for (const char* run : {"local", "mpi"}) fs::remove_all(folder_ / run);
  }

  // The program must print one line, once, and leave no run directory.
  void expect_refused(int ranks, const std::string& command, const std::string& words, int exit_code) {
    const MpiOutcome outcome = mpirun(ranks, command, folder_);
    EXPECT_EQ(outcome.exit_code, exit_code) << command;
    const size_t first = outcome.err.find("train_resnet: ");
    EXPECT_TRUE(outcome.says(words)) << command << ": " << outcome.err;
    EXPECT_EQ(outcome.err.find("train_resnet: ", first + 1), std::string::npos) << command << ": " << outcome.err;
    EXPECT_LT(outcome.seconds, 60) << command;
    EXPECT_FALSE(fs::exists(folder_ / "run")) << command;
  }

  TempFolder folder_;
};

TEST_F(MpiTrain, MatchesARunWithThreadsBitForBit) {
  expect_same_bits({4, 2}, "--optimizer birder");
  expect_same_bits({2, 2}, "--optimizer sgdm");
  expect_same_bits({3, 1}, "--optimizer sgdm --set exchange.wire=bf16");
  expect_same_bits({2, 2}, "--optimizer sgdm --exchange hierarchical");
}

TEST_F(MpiTrain, ShardingAndCompressionMatchARunWithThreads) {
  expect_same_bits({3, 1}, "--optimizer adamw --exchange loco --set exchange.sharding=zero2 "
                           "--set exchange.parameter_wire=bf16");
  expect_same_bits({1, 3}, "--optimizer adamw --set exchange.sharding=zero3 --set bucket.mib=0.1");
  expect_same_bits({2, 2}, "--optimizer birder --set exchange.sharding=hybrid --set bucket.mib=0.1");
  expect_same_bits({2, 1}, "--exchange topk --set exchange.reply=coded --set exchange.error_feedback=both");
}

// Compression starts at the second step. In 0/1 Adam the third step is a local step.
TEST_F(MpiTrain, MethodsWithAWarmUpMatchARunWithThreads) {
  expect_same_bits({2, 1}, "--optimizer one_bit_adam --set optimizer.warmup_steps=1");
  expect_same_bits({2, 1}, "--optimizer zero_one_adam --set optimizer.warmup_steps=1 --set optimizer.intervals=fixed "
                           "--set optimizer.max_interval=2");
}

TEST_F(MpiTrain, TopologyComesFromTheLauncher) {
  const MpiOutcome outcome = mpirun(2, kProgram + std::string(kSmall) + "--run-dir run", folder_);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json config = json::parse(text("run/config.json"));
  EXPECT_EQ(config["nodes"], 1) << "all ranks run on one host";
  EXPECT_EQ(config["workers_per_node"], 2);
  EXPECT_EQ(config["transport"], "auto");
}

TEST_F(MpiTrain, ErrorsAreReportedOnce) {
  const std::string program = kProgram + std::string(kSmall) + "--run-dir run ";
  expect_refused(4, program + "--nodes 3", "the launcher started 4 ranks, but --nodes 3 ", 2);
  expect_refused(4, program + "--nodes 3 --workers-per-node 2", "4 ranks, but --nodes 3 × --workers-per-node 2 are 6",
                 2);
  expect_refused(4, program + "--nods 2", "did you mean --nodes?", 2);
  expect_refused(2, program + "--set transport=local", "each train by themselves", 2);
  expect_refused(4, program + "--data nowhere", "nowhere", 1);
  expect_refused(2, program + "--lr 0.1 : -np 1 " + program + "--lr 0.2 --seed 7", "optimizer.lr, seed on rank 2", 1);
  // Other methods have other options.
  expect_refused(2, program + ": -np 1 " + program + "--optimizer birder", "optimizer.name", 1);
  const std::string local = "cd '" + folder_.str() + "' && " + kProgram + "--set transport=mpi >out 2>&1";
  EXPECT_NE(std::system(local.c_str()), 0);
  EXPECT_NE(text("out").find("no launcher"), std::string::npos) << text("out");
}

TEST_F(MpiTrain, NamesARankOfAnotherBuild) {
  const std::string program = kProgram + std::string(kSmall) + "--run-dir run ";
  expect_refused(2, program + ": -np 1 " + faulty_system("FAULTY_MPI=Open MPI v0.9, old") + program + "--lr 0.2",
                 "hosts run different builds: rank 2 on host ", 1);
  const std::string error = text("mpi.err");
  EXPECT_THAT(error, HasSubstr(", Open MPI v0.9; rank 0 on host "));
  EXPECT_THAT(error, HasSubstr("; install the same build on all hosts\n"));
}

TEST_F(MpiTrain, ThirtyTwoRanksTrainATinyModel) {
  expect_same_bits({16, 2}, "--batch 1 --max-steps 2 --set eval_batch=1 --threads 1 --optimizer birder");
}

TEST_F(MpiTrain, NamesRanksWithOtherData) {
  fs::create_directory(folder_ / "other");
  fs::copy(folder_ / "data", folder_ / "other", fs::copy_options::overwrite_existing | fs::copy_options::recursive);
  Bytes images = read(folder_ / "other/train-images-idx3-ubyte");
  images.back() ^= 1;
  write(folder_ / "other/train-images-idx3-ubyte", images);
  const std::string program = kProgram + std::string(kSmall) + "--run-dir run ";
  expect_refused(2, program + ": -np 1 " + program + "--data other",
                 "ranks disagree on the training data: rank 2 differs from the rest; use the same files on all ranks",
                 1);
}

TEST_F(MpiTrain, AStoppedRankEndsAllWithoutAnInterruptMessage) {
  const std::string program =
      kProgram + std::string(kSmall) + "--run-dir run --epochs 1000000 --max-steps 0 --set timeout_s=5";
  const MpiOutcome outcome = mpirun(2, program + " : -np 1 " + signal_after(1, "STOP") + program, folder_);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_TRUE(outcome.says("timeout: ")) << outcome.err;
  EXPECT_TRUE(outcome.says("; rank 2 does not answer\n")) << outcome.err;
  EXPECT_FALSE(outcome.says("interrupted")) << outcome.err;
}

// A signal to one process stops all processes after the same step, without logging and between synchronizations of
// local steps.
TEST_F(MpiTrain, ASignalToOneRankMakesAllRanksSaveTheWeights) {
  const std::string program =
      kProgram + std::string(
                     "--data data --batch 2 --set log_every=1000000000 --check-replicas 4 --run-dir run "
                     "--epochs 1000000 --optimizer zero_one_adam --set optimizer.warmup_steps=1 "
                     "--set optimizer.intervals=fixed --set optimizer.max_interval=4");
  const MpiOutcome outcome =
      mpirun(2, "timeout -k 2 20 " + program + " : -np 1 " + signal_after(1, "INT") + program, folder_);
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_TRUE(fs::exists(folder_ / "run/weights.safetensors"));
  EXPECT_NE(text("run/metrics.jsonl").find("\"interrupted\": true}\n"), std::string::npos);
  EXPECT_THAT(outcome.out, HasSubstr("interrupted after "));
}

// SIGUSR1 to one process: all processes save and go on. Threads or other processes resume from this checkpoint.
TEST_F(MpiTrain, ASignalRequestsACheckpointForAnyLauncher) {
  const std::string program =
      kProgram +
      std::string(
          "--data data --batch 2 --epochs 400 --max-steps 400 --set log_every=1 --optimizer birder --run-dir run");
  MpiOutcome outcome =
      mpirun(2, program + " : -np 1 " + signal_after(20, "USR1") + program + " : -np 1 " + program, folder_);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("checkpoint of step "));
  const std::string whole = results("run"), weights = text("run/weights.safetensors");
  const std::string local = "cd '" + folder_.str() + "' && " + kProgram + "--resume run >out 2>&1";
  ASSERT_EQ(std::system(local.c_str()), 0) << text("out");
  EXPECT_EQ(results("run"), whole);
  EXPECT_EQ(text("run/weights.safetensors"), weights);
  outcome = mpirun(2, kProgram + std::string("--resume run"), folder_);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 workers instead of 4: batch 2 and accumulation 2 keep 8 samples per step"));
}

// A resumed run takes its number of nodes from config.json, instead of one node per host.
TEST_F(MpiTrain, AResumedRunKeepsItsNodes) {
  const std::string program = kProgram + std::string(kSmall) + "--optimizer birder --run-dir run ";
  MpiOutcome outcome = mpirun(4, program + "--nodes 2 --checkpoint-every 1", folder_);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string whole = results("run"), weights = text("run/weights.safetensors");
  fs::remove_all(folder_ / "run/checkpoints/step-3");
  outcome = mpirun(4, kProgram + std::string("--resume run"), folder_);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(results("run"), whole);
  EXPECT_EQ(text("run/weights.safetensors"), weights);
}

// Processes write files with error feedback, variance and warm-up state, shards and low-rank factors.
TEST_F(MpiTrain, AResumedRunHasTheSameBitsWithEveryKindOfState) {
  for (const std::string flags :
       {"--optimizer one_bit_adam --set optimizer.warmup_steps=2",
        "--optimizer zero_one_adam --set optimizer.warmup_steps=1 --set optimizer.intervals=fixed "
        "--set optimizer.max_interval=2",
        "--optimizer adamw --exchange loco --set exchange.sharding=zero2", "--optimizer sgdm --exchange powersgd"}) {
    MpiOutcome outcome = mpirun(2,
                                kProgram + std::string(kSmall) + "--max-steps 7 --nodes 2 --checkpoint-every 1 " +
                                    "--set checkpoint.keep=9 --run-dir run " + flags,
                                folder_);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::string whole = results("run"), weights = text("run/weights.safetensors");
    int64_t left = 0;
    for (const auto& [step, folder] : checkpoints_in(folder_ / "run/checkpoints"))
      if (step > 4) fs::remove_all(folder);
      else left = step;
    ASSERT_GE(left, 3) << flags;
    outcome = mpirun(2, kProgram + std::string("--resume run"), folder_);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("continues after step " + std::to_string(left)));
    EXPECT_EQ(results("run"), whole) << flags;
    EXPECT_TRUE(text("run/weights.safetensors") == weights) << flags;
    fs::remove_all(folder_ / "run");
  }
}

// All ranks throw the error of the rank that checked the file.
TEST_F(MpiTrain, ACorruptCheckpointIsReportedOnce) {
  const std::string program = kProgram + std::string(kSmall) + "--run-dir run ";
  ASSERT_EQ(mpirun(3, program, folder_).exit_code, 0);
  const std::string file = folder_ / "run/checkpoints/step-3/rank-00001.safetensors";
  Bytes bytes = read(file);
  bytes.back() ^= 1;
  write(file, bytes);
  const MpiOutcome outcome = mpirun(3, kProgram + std::string("--resume run"), folder_);
  EXPECT_EQ(outcome.exit_code, 1);
  const std::string message = ": its checksum differs";
  EXPECT_THAT(outcome.err,
              HasSubstr("train_resnet: rank 1: run/checkpoints/step-3/rank-00001.safetensors" + message));
  EXPECT_EQ(outcome.err.find(message), outcome.err.rfind(message)) << outcome.err;
}

TEST_F(MpiTrain, AConfigurationThatCannotBeReadIsReportedOnce) {
  fs::create_directory(folder_ / "run");
  fs::create_symlink("gone", folder_ / "run/config.json");
  const MpiOutcome outcome = mpirun(3, kProgram + std::string(kSmall) + "--run-dir run --resume auto", folder_);
  EXPECT_EQ(outcome.exit_code, 1);
  const std::string message = "run/config.json: cannot be read (No such file or directory)";
  EXPECT_THAT(outcome.err, HasSubstr("train_resnet: " + message));
  EXPECT_EQ(outcome.err.find(message), outcome.err.rfind(message)) << outcome.err;
}

// mpirun ends the ranks one second after SIGTERM, but passes SIGUSR2 on to them. Saving takes 2.5 s here.
TEST_F(MpiTrain, Sigusr2ToTheLauncherLeavesTimeToSave) {
  const std::string program = kProgram + std::string(kSmall) + "--run-dir run --epochs 1000000 --max-steps 0";
  const std::string line = "cd '" + folder_.str() + "' && timeout -k 2 60 " + signal_after(9, "USR2") +
                           "mpirun --allow-run-as-root --oversubscribe -np 2 " +
                           faulty_system("FAULTY_SLOW=/weights.safetensors 2500") + program +
                           " >mpi.out 2>mpi.err </dev/null";
  const int status = std::system(line.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 143) << text("mpi.err");
  EXPECT_TRUE(fs::exists(folder_ / "run/weights.safetensors")) << text("mpi.err");
  EXPECT_NE(text("mpi.out").find("; --resume run continues the run"), std::string::npos) << text("mpi.out");
}

// The other ranks print rank, host and phase before the launcher ends them. If they are computing, the launcher's
// SIGTERM may come first; its message also mentions a dead rank.
TEST_F(MpiTrain, AKilledRankIsNamedAndEndsAllRanks) {
  const std::string program = kProgram + std::string(kSmall) + "--run-dir run --epochs 1000000 --max-steps 0";
  const MpiOutcome outcome = mpirun(2, program + " : -np 1 " + signal_after(1, "KILL") + program, folder_);
  const std::chrono::duration<double> ended_after =
      fs::file_time_type::clock::now() - fs::last_write_time(folder_ / "signaled");
  EXPECT_LT(ended_after.count(), std::string(GODWIT_SANITIZE).empty() ? 5 : 20);
  EXPECT_EQ(outcome.exit_code, 137) << outcome.err;
  char host[256] = "";
  ASSERT_EQ(gethostname(host, sizeof(host)), 0);
  EXPECT_TRUE(outcome.says(std::string(" on ") + host + ": phase '")) << outcome.err;
  EXPECT_TRUE(outcome.says(std::string("': rank 2 on ") + host + " has ended; its process was killed or has crashed\n"))
      << outcome.err;
  EXPECT_FALSE(fs::exists(folder_ / "run/weights.safetensors"));
  EXPECT_EQ(outcome.says("SIGTERM: "),
            outcome.says("SIGTERM: stopping after the current step or batch of an evaluation to save the weights; if "
                         "another rank has died, the launcher ends this rank before it can save\n"))
      << outcome.err;
}

// Rank 0 writes. The other ranks wait longer for a writing rank than for an unresponsive one.
TEST_F(MpiTrain, ASlowDiskDoesNotTimeOut) {
  for (const std::string file : {"/config.json", "/weights.safetensors"}) {
    const std::string slow = faulty_system("FAULTY_SLOW=" + file + " 5700");
    const MpiOutcome outcome = mpirun(3, slow + kProgram + kSmall + "--run-dir run --set timeout_s=5", folder_);
    EXPECT_EQ(outcome.exit_code, 0) << file << ": " << outcome.err;
    EXPECT_EQ(outcome.err, "") << file;
    EXPECT_TRUE(fs::exists(folder_ / "run/weights.safetensors")) << file;
    fs::remove_all(folder_ / "run");
  }
}

TEST_F(MpiTrain, ARankWithoutMemoryEndsAllRanks) {
  const std::string program = kProgram + std::string(kSmall) + "--run-dir run --epochs 1000000 --max-steps 0";
  const MpiOutcome outcome =
      mpirun(2, program + " : -np 1 " + faulty_system("FAULTY_MEMORY=1000000") + program, folder_);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_TRUE(outcome.says("rank 2: tensor [")) << outcome.err;
  EXPECT_TRUE(outcome.says("in use by this rank; lower --batch or the number of ranks on this machine, or choose a "
                           "smaller model\n"))
      << outcome.err;
  EXPECT_LT(outcome.seconds, 30);
}

// Time limits and checkpoints by the clock do not depend on the time of day.
TEST_F(MpiTrain, AJumpOfTheClockHasNoEffect) {
  const std::string program =
      kProgram + std::string(kSmall) + "--set timeout_s=20 --checkpoint-every 1min --optimizer birder --run-dir ";
  ASSERT_EQ(mpirun(2, program + "steady", folder_).exit_code, 0);
  const MpiOutcome outcome =
      mpirun(1, program + "run : -np 1 " + faulty_system("FAULTY_CLOCK=864000") + program + "run", folder_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(results("run"), results("steady"));
  EXPECT_EQ(text("run/weights.safetensors"), text("steady/weights.safetensors"));
}

TEST_F(MpiTrain, AFullDiskForMetricsDoesNotLoseWeights) {
  const std::string full = faulty_system("FAULTY_FULL=/metrics.jsonl 700 1000000");
  const MpiOutcome outcome =
      mpirun(2, full + kProgram + kSmall + "--run-dir run --epochs 1000000 --max-steps 0", folder_);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(
      outcome.says("run/metrics.jsonl: cannot be written (No space left on device); free space there or choose "
                   "another --run-dir; the weights after step "))
      << outcome.err;
  EXPECT_TRUE(fs::exists(folder_ / "run/weights.safetensors"));
}

// Answers combine windows from all processes; each process trains the same vocabulary.
TEST_F(MpiTrain, SquadMatchesARunWithThreads) {
  const std::string context = R"("context": "anna lives in oslo and bert lives in rome .", "qas": [)";
  std::string qas;
  for (int i = 0; i < 12; ++i)
    qas += (i ? ", " : "") + std::string(R"({"id": ")") + std::to_string(i) + R"(", "question": "where is )" +
           (i % 2 ? "bert" : "anna") + R"( ?", "answers": [{"text": ")" + (i % 2 ? "rome" : "oslo") +
           R"(", "answer_start": )" + (i % 2 ? "37" : "14") + "}]}";
  const std::string text_of = R"({"data": [{"paragraphs": [{)" + context + qas + "]}]}]}";
  fs::create_directory(folder_ / "squad");
  for (const std::string file : {"/train-v1.1.json", "/dev-v1.1.json"})
    write(folder_ / "squad" + file, Bytes(text_of.begin(), text_of.end()));
  const std::string program =
      "'" GODWIT_SHELL_BINARY_DIR "/train_bert' --task squad --data squad --model bert_tiny --length 32 ";
  const std::string flags = "--set data.max_question=8 --optimizer birder --batch 2 --threads 1 --nodes 2 --run-dir ";
  const std::string local = "cd '" + folder_.str() + "' && " + program + flags + "local >out 2>&1";
  ASSERT_EQ(std::system(local.c_str()), 0) << text("out");
  const MpiOutcome outcome = mpirun(2, program + flags + "mpi", folder_);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(results("mpi"), results("local"));
  for (const char* file : {"/predictions.json", "/nbest_predictions.json", "/vocab.txt", "/model/model.safetensors"})
    EXPECT_EQ(text(std::string("mpi") + file), text(std::string("local") + file)) << file;
}

// Each process decodes some of the files; rank 0 reports the corrupt files of both processes.
TEST_F(MpiTrain, ReportsCorruptFilesOfAllRanks) {
  const std::string photos = folder_ / "photos", golden = GODWIT_SOURCE_DIR "/tests/data/golden/";
  const Bytes whole = read(golden + "large.jpg");
  Bytes damaged = whole;  // valid header and end, but only a few valid pixels
  std::fill(std::ranges::search(damaged, Bytes{0xff, 0xda}).begin() + 60, damaged.end() - 2, uint8_t{0});
  for (const std::string name : {"cat", "dog"}) {
    fs::create_directories(photos + "/train/" + name);
    fs::create_directories(photos + "/val/" + name);
    write(photos + "/val/" + name + "/0.jpg", whole);
    for (const std::string file : {"/1.jpg", "/2.jpg", "/3.jpg"}) write(photos + "/train/" + name + file, damaged);
  }
  const std::string flags = "--data photos --batch 1 --epochs 1 --set data.crop=16 --run-dir run";
  const MpiOutcome outcome = mpirun(2, kProgram + flags, folder_);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("corrupt file train/cat/1.jpg: is corrupt"));
  EXPECT_THAT(outcome.out, HasSubstr("and 1 more corrupt file\n"));
}

}  // namespace mpi_train_test
}  // namespace godwit
