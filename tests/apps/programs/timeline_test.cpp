// trace.json and TensorBoard's event files of whole runs.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "tests/apps/programs/train_resnet.h"
#include "tests/mpirun.h"

namespace godwit {
namespace timeline_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class Timeline : public TrainResnet {
 protected:
  // Checks the form of the trace: every row has a name, its times rise, and its events nest.
  json read_trace() const {
    json trace = json::parse(read_file(run_dir() / "trace.json"));
    std::map<std::pair<int, int>, std::string> names;
    std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> open;  // events around the current one
    std::map<std::pair<int, int>, double> last;
    for (const json& event : trace["traceEvents"]) {
      const std::pair<int, int> row{event["pid"].get<int>(), event["tid"].get<int>()};
      if (event["ph"] == "M") {
        if (event["name"] == "thread_name") {
          const auto name = event["args"]["name"].get<std::string>();
          for (const auto& [other, its] : names) EXPECT_FALSE(other.first == row.first && its == name) << name;
          names[row] = name;
        }
        continue;
      }
      EXPECT_EQ(event["ph"], "X");
      EXPECT_TRUE(names.contains(row));
      const double begin = event["ts"], end = begin + event["dur"].get<double>();
      EXPECT_GE(begin, last[row]) << event;
      last[row] = begin;
      auto& around = open[row];
      while (!around.empty() && around.back().second <= begin + 5e-4) around.pop_back();
      if (!around.empty()) {
        EXPECT_LE(end, around.back().second + 2e-3) << event << " ends after the event around it";
      }
      around.emplace_back(begin, end);
    }
    return trace;
  }

  // Number of events by name, of a rank.
  static std::map<std::string, int> counts(const json& trace, int rank) {
    std::map<std::string, int> all;
    for (const json& event : trace["traceEvents"])
      if (event["ph"] == "X" && event["pid"] == rank) ++all[event["name"].get<std::string>()];
    return all;
  }

  // The scalars that TensorBoard's own reader finds: tag -> steps and values. Null without the module tensorboard.
  json read_events() const {
    const std::string command = "python3 '" GODWIT_SHELL_SOURCE_DIR "/tests/apps/report/tensorboard/read_events.py' '" +
                                run_dir().string() + "' >'" + (folder_ / "scalars").string() + "' 2>/dev/null";
    const int status = std::system(command.c_str());
    return status == 0 ? json::parse(read_file(folder_ / "scalars")) : json();
  }
};

TEST_F(Timeline, ShowsEveryRankThreadAndBucket) {
  const Outcome outcome = train(
      "--optimizer birder --nodes 2 --batch 8 --max-steps 8 --epochs 2 --trace --set trace_steps=3 "
      "--set bucket.first_mib=0.1 --set bucket.mib=0.5 --checkpoint-every 7");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("timeline of steps 6 to 8 in run/trace.json"));
  const json trace = read_trace();
  EXPECT_EQ(trace["otherData"]["first_step"], 6);
  EXPECT_EQ(trace["otherData"]["last_step"], 8);
  std::map<int, std::set<std::string>> rows;
  for (const json& event : trace["traceEvents"])
    if (event["name"] == "thread_name") rows[event["pid"].get<int>()].insert(event["args"]["name"].get<std::string>());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(rows[rank].contains("compute") && rows[rank].contains("communication")) << rank;
    EXPECT_TRUE(rows[rank].contains("loader 1") && rows[rank].contains("evaluation loader 1")) << rank;
    auto found = counts(trace, rank);
    for (const char* name : {"step 6", "step 7", "step 8"}) EXPECT_EQ(found[name], 1) << name;
    EXPECT_EQ(found["step 5"], 0);
    for (const char* name : {"forward", "backward", "data wait", "finish step", "update 0", "update 1"})
      EXPECT_EQ(found[name], 3) << name;
    for (const char* name : {"communicate 0", "communicate 1", "compress 0", "h1ar/inter_all_to_all"})
      EXPECT_GE(found[name], 3) << name;
    EXPECT_GE(found["evaluation"], 1);
    EXPECT_EQ(found["checkpoint 7"], 1);
  }
  std::map<int, json> buckets;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event.contains("args")) buckets[event["args"]["bucket"].get<int>()] = event["args"];
  ASSERT_GE(buckets.size(), 2u);
  EXPECT_TRUE(buckets[0]["parameter"].get<std::string>().starts_with("fc.")) << buckets[0];
  EXPECT_GE(buckets[0]["bytes"], 1000);
}

TEST_F(Timeline, IsWrittenOnlyOnRequest) {
  ASSERT_EQ(train("--batch 8 --max-steps 2 --set tensorboard=false").exit_code, 0);
  EXPECT_FALSE(fs::exists(run_dir() / "trace.json"));
  for (const auto& file : fs::directory_iterator(run_dir()))
    EXPECT_FALSE(file.path().filename().string().starts_with("events.")) << file.path();
  fs::remove_all(run_dir());
  expect_refused("--trace --set trace_steps=0", {"trace_steps", "0"});
}

// A trace that cannot be written stops the run like any other file of the run.
TEST_F(Timeline, AnUnwritableTraceIsOneMessage) {
  fs::create_directories(run_dir() / "trace.json.tmp");
  const Outcome outcome = train("--batch 8 --max-steps 4 --trace");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("run/trace.json.tmp: cannot be written (Is a directory)"));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(fs::exists(run_dir() / "weights.safetensors"));
}

TEST_F(Timeline, OfProcessesIsInOneFile) {
  if (const std::string reason = no_mpirun(); !reason.empty()) GTEST_SKIP() << reason;
  const MpiOutcome outcome =
      mpirun(2, "'" GODWIT_SHELL_BINARY_DIR "/train_resnet' " + base_ + " --batch 8 --max-steps 3 --trace", scratch_);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json trace = read_trace();
  EXPECT_LT(trace["otherData"]["clock_error_us"], 1e6);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(counts(trace, rank)["step 3"], 1);
  // On a common clock, a collective ends after both ranks have begun it.
  double begin = 0, end = 1e300;  // of the last event with this name: latest begin, earliest end
  for (int rank = 0; rank < 2; ++rank) {
    double last_begin = 0, last_end = 0;
    for (const json& event : trace["traceEvents"])
      if (event["name"] == "metrics/all_reduce" && event["pid"] == rank)
        last_begin = event["ts"].get<double>(), last_end = last_begin + event["dur"].get<double>();
    EXPECT_GT(last_end, 0);
    begin = std::max(begin, last_begin), end = std::min(end, last_end);
  }
  EXPECT_GE(end, begin);
}

// A resumed run writes a new file, which hides the older files' steps after the checkpoint.
TEST_F(Timeline, TensorBoardReadsTheScalarsOfMetrics) {
  const std::string flags = "--optimizer adamw --nodes 2 --batch 16 --max-steps 7 --epochs 2 --set log_every=1 ";
  ASSERT_EQ(train(flags + "--checkpoint-every 3 --set checkpoint.keep=9").exit_code, 0);
  for (const int step : {6, 7}) fs::remove_all(run_dir() / ("checkpoints/step-" + std::to_string(step)));
  const Outcome resumed = train("", "--resume run");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  int files = 0;
  for (const auto& file : fs::directory_iterator(run_dir()))
    files += file.path().filename().string().starts_with("events.out.tfevents.");
  EXPECT_EQ(files, 2);
  const json scalars = read_events();
  if (scalars.is_null()) GTEST_SKIP() << "python3 has no module tensorboard";
  std::map<std::string, std::vector<std::pair<int64_t, double>>> expected;
  for (const json& line : metrics())
    for (const auto& [key, value] : line.items())
      for (const auto& [name, tag] : std::map<std::string, std::string>{{"loss", "train/loss"},
                                                                        {"accuracy", "train/accuracy"},
                                                                        {"lr", "train/lr"},
                                                                        {"samples_per_s", "train/samples_per_s"},
                                                                        {"bytes_inter", "bytes/inter"},
                                                                        {"forward_s", "time/forward"},
                                                                        {"other_s", "time/other"},
                                                                        {"test_top1", "evaluation/test_top1"}})
        if (key == name) expected[tag].emplace_back(line["step"].get<int64_t>(), value.get<double>());
  ASSERT_EQ(expected["train/loss"].size(), 7u);
  EXPECT_EQ(expected.size(), 8u);
  for (const auto& [tag, points] : expected) {
    ASSERT_EQ(scalars[tag].size(), points.size()) << tag;
    for (size_t i = 0; i < points.size(); ++i) {
      EXPECT_EQ(scalars[tag][i][0], points[i].first) << tag;
      EXPECT_FLOAT_EQ(scalars[tag][i][1].get<float>(), static_cast<float>(points[i].second)) << tag;
    }
  }
}

}  // namespace timeline_test
}  // namespace godwit
