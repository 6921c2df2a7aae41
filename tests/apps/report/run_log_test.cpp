#include "apps/report/run_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/report/run_summary.h"
#include "comm/transport/local.h"
#include "engine/check.h"

namespace godwit::apps {
namespace run_log_test {

namespace fs = std::filesystem;
using nlohmann::json;

// Runs in an empty temporary folder.
class RunLogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/godwit_run_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    before_ = fs::current_path();
    fs::current_path(folder_);
  }
  void TearDown() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }
  fs::path folder_, before_;
};

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string error(const std::string& wanted) {
  try {
    create_run_dir(wanted, "name");
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST_F(RunLogTest, RunsWithoutAGivenFolderGetNewFolders) {
  const std::string a = create_run_dir("", "resnet20-birder"), b = create_run_dir("", "resnet20-birder");
  EXPECT_NE(a, b);
  EXPECT_EQ(a.find("runs/resnet20-birder-20"), 0u);
  EXPECT_TRUE(fs::is_directory(a));
  EXPECT_TRUE(fs::is_directory(b));
}

TEST_F(RunLogTest, LinesAreFlushedAndKeepFloatsExactly) {
  RunLog log(create_run_dir("deep/er", "name"), "{\"epochs\": 3}", false);
  EXPECT_EQ(log.path(), "deep/er");
  EXPECT_EQ(content("deep/er/config.json"), "{\"epochs\": 3}\n");
  EXPECT_EQ(content("deep/er/metrics.jsonl"), "");
  const float loss = 0.1f + 0.2f;
  TimeSplit times{.forward = 0.03, .backward = 0.05, .data_wait = 0.004, .exposed_compression = 0.001};
  times.exposed_communication = 0.02, times.exposed_update = 0.002, times.idle = 0.01;
  times.compression = 0.003, times.communication = 0.05, times.update = 0.006, times.total = 0.128;
  log.step({.step = 10, .epoch = 1, .loss = loss, .lr = 0.1, .samples_per_s = 1000.5, .bytes_intra = 0,
            .bytes_inter = 34102, .times = times, .accuracy = 0.25});
  log.evaluation({468, 1, {{"test_loss", NAN}, {"test_top1", 0.8812}, {"test_top5", INFINITY}}});
  std::istringstream lines(content("deep/er/metrics.jsonl"));  // while the log is open
  std::string first, second, rest;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_FALSE(std::getline(lines, rest));
  const json step = json::parse(first), evaluation = json::parse(second);
  EXPECT_EQ(step.size(), 22u);
  EXPECT_EQ(step["step"], 10);
  EXPECT_EQ(step["epoch"], 1);
  EXPECT_EQ(step["loss"].get<float>(), loss);
  EXPECT_EQ(step["lr"], 0.1);
  EXPECT_EQ(step["samples_per_s"], 1000.5);
  EXPECT_EQ(step["step_s"], 0.128);
  EXPECT_EQ(step["bytes_intra"], 0);
  EXPECT_EQ(step["bytes_inter"], 34102);
  EXPECT_EQ(step["accuracy"], 0.25);
  EXPECT_EQ(step["data_wait_s"], 0.004);
  EXPECT_EQ(step["computation_s"], 0.08);
  EXPECT_EQ(step["waiting_s"], 0.033);
  EXPECT_EQ(step["communication_s"], 0.05);
  EXPECT_EQ(step["other_s"], 0.011) << "what the parts lack of the step";
  EXPECT_EQ(evaluation.size(), 5u);
  EXPECT_TRUE(evaluation["test_loss"].is_null());
  EXPECT_EQ(evaluation["test_top1"], 0.8812);
  EXPECT_TRUE(evaluation["test_top5"].is_null());
}

// It describes the part of the run before.
TEST_F(RunLogTest, AResumedRunHasNoSummaryUntilItsEnd) {
  const std::string dir = create_run_dir("run", "name");
  RunLog(dir, "{}", false).file("summary.json", "{}");
  RunLog(dir, "{}", false, ResumedAt{.step = 0, .metrics_bytes = 0, .complete = true});
  EXPECT_TRUE(fs::exists("run/summary.json"));
  RunLog(dir, "{}", false, ResumedAt{.step = 0, .metrics_bytes = 0});
  EXPECT_FALSE(fs::exists("run/summary.json"));
  EXPECT_TRUE(fs::exists("run/config.json"));
}

// The size that a checkpoint remembers is in the middle of a line, so this is another file.
TEST_F(RunLogTest, MetricsThatDoNotEndWithAWholeLineAreSetAside) {
  const std::string dir = create_run_dir("run", "name"), lines = "{\"step\": 1}\n{\"step\": 2, \"loss\": 3}\n";
  for (const bool whole : {true, false}) {
    std::ofstream("run/metrics.jsonl") << lines;
    const int64_t bytes = std::ssize(lines) - (whole ? 0 : 5);
    const RunLog log(dir, "{}", false, ResumedAt{.step = 2, .metrics_bytes = bytes});
    EXPECT_EQ(log.notice().empty(), whole) << log.notice();
    EXPECT_EQ(content("run/metrics.jsonl"), whole ? lines : "");
  }
  EXPECT_EQ(content("run/metrics.old.jsonl"), lines);
}

TEST_F(RunLogTest, ByteCountsAreExact) {
  RunLog log(create_run_dir("a", ""), "{}", false);
  log.step({1, 1, 0, 0, 0, 12345678901, 9007199254740993.0});
  const json step = json::parse(content("a/metrics.jsonl"));
  EXPECT_EQ(step["bytes_intra"].get<int64_t>(), 12345678901);
  EXPECT_EQ(step["bytes_inter"].get<int64_t>(), 9007199254740992);
}

TEST_F(RunLogTest, NeverMixesTwoRuns) {
  {
    RunLog log(create_run_dir("a", ""), "{}", false);
    EXPECT_THROW(RunLog("a", "{\"x\": 1}", false), Error);  // no step yet, but the run is active
    log.evaluation({1, 1, {{"test_loss", 0}}});
  }
  const std::string message = error("a");
  EXPECT_NE(message.find("run directory a: contains metrics of another run"), std::string::npos) << message;
  EXPECT_NE(message.find("--run-dir"), std::string::npos);
  EXPECT_THROW(RunLog("a", "{\"x\": 1}", false), Error);
  EXPECT_EQ(content("a/config.json"), "{}\n");
  fs::create_directory("mine");
  std::ofstream("mine/notes.txt") << "x";
  EXPECT_EQ(create_run_dir("mine", ""), "mine");
}

TEST_F(RunLogTest, AFolderOfARunThatNeverTrainedIsReused) {
  { RunLog log(create_run_dir("a", ""), "{}", false); }
  EXPECT_EQ(content("a/metrics.jsonl"), "");
  {
    RunLog log(create_run_dir("a", ""), "{\"x\": 1}", false);
    log.evaluation({1, 1, {{"test_loss", 0}}});
  }
  EXPECT_EQ(content("a/config.json"), "{\"x\": 1}\n");
  EXPECT_NE(error("a"), "no error");
}

TEST_F(RunLogTest, KeepsFilesThatAreNotOfARun) {
  for (const std::string name : {"config.json", "summary.json", "vocab.txt", "model"}) {
    fs::create_directory("other");
    std::ofstream("other/" + name) << "x";
    const std::string expected = "run directory other: is not of a run, and the run would replace " + name +
                                 " there; choose another with --run-dir DIR";
    EXPECT_EQ(error("other"), expected);
    EXPECT_THROW(create_run_dir("other", "", /*resumed=*/true), Error) << "--resume auto without a checkpoint";
    EXPECT_EQ(content("other/" + name), "x");
    std::ofstream("other/metrics.jsonl");  // of a run that never trained
    EXPECT_EQ(error("other"), "no error");
    fs::remove_all("other");
  }
}

TEST_F(RunLogTest, ErrorsContainTheSystemsReason) {
  const std::string remedy = "; choose another with --run-dir DIR", long_name(300, 'x');
  EXPECT_EQ(error(long_name), "run directory " + long_name + ": cannot be created (File name too long)" + remedy);
  fs::create_symlink("loop", "loop");
  EXPECT_EQ(error("loop/a"), "run directory loop/a: cannot be created (Too many levels of symbolic links)" + remedy);
  std::ofstream("runs") << "a file";
  EXPECT_EQ(error(""), "run directory runs: cannot be created (a file with this name exists)" + remedy);
}

TEST_F(RunLogTest, ReportsMissingPermissions) {
  if (::geteuid() == 0) GTEST_SKIP() << "root has all permissions";
  const std::string remedy = "; choose another with --run-dir DIR";
  fs::create_directories("closed/inner");
  fs::permissions("closed", fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(error("closed"), "run directory closed: cannot be written (Permission denied)" + remedy);
  EXPECT_EQ(error("closed/new"), "run directory closed/new: cannot be created (Permission denied)" + remedy);
  fs::permissions("closed", fs::perms::none);
  EXPECT_EQ(error("closed/inner"), "run directory closed/inner: cannot be created (Permission denied)" + remedy);
  fs::permissions("closed", fs::perms::owner_all);
}

TEST_F(RunLogTest, RefusesInvalidPaths) {
  std::ofstream("file") << "x";
  EXPECT_NE(error("file").find("run directory file"), std::string::npos);
  EXPECT_NE(error("file/below").find("run directory file/below"), std::string::npos);
  EXPECT_NE(error("/proc/godwit").find("run directory /proc/godwit"), std::string::npos);
  EXPECT_THROW(RunLog("missing", "{}", false), Error);
  std::ofstream("runs") << "a file";
  EXPECT_NE(error("").find("run directory runs: cannot be created"), std::string::npos);
}

TEST_F(RunLogTest, FullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  fs::create_directory("full");
  fs::create_symlink("/dev/full", "full/config.json.tmp");
  try {
    RunLog("full", "{}", false);
    ADD_FAILURE() << "no Error was thrown";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("full/config.json: cannot be written (No space left"), std::string::npos)
        << e.what();
  }
  EXPECT_FALSE(fs::exists("full/config.json"));
}

TEST(RunSummary, SecondsAreMeansOverTheWorkers) {
  run_local({2, 1}, [](Communicator& comm) {
    const DataParallel replica({{"w", Var(Tensor::zeros({5}), true)}}, comm, {.optimizer = "sgd"});
    comm.stats->add("test", 0, 8);
    comm.stats->add_time("test", 1 + 2 * comm.rank);
    const RunSummary all = gather_run_summary(comm, replica, 1, {});
    if (comm.rank != 0) return;
    const auto phase = std::ranges::find(all.phases, "test", &RunSummary::Phase::name);
    ASSERT_NE(phase, all.phases.end());
    EXPECT_DOUBLE_EQ(phase->seconds, 2);
    EXPECT_EQ(phase->bytes_inter, 16);
  });
}

}  // namespace run_log_test
}  // namespace godwit::apps
