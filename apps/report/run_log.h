// The run directory: config.json and metrics.jsonl.
#pragma once
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace godwit::apps {

// Time of a step by activity, in seconds, means over the workers. See StepTimes in optim/data_parallel.h.
struct TimeSplit {
  double computation = 0, waiting = 0, idle = 0;
  double compression = 0, communication = 0, update = 0;

  TimeSplit& operator+=(const TimeSplit& other) {
    computation += other.computation, waiting += other.waiting, idle += other.idle;
    compression += other.compression, communication += other.communication, update += other.update;
    return *this;
  }
};

struct StepMetrics {
  int64_t step, epoch;
  double loss, lr, samples_per_s, step_s;  // step_s: seconds
  double bytes_intra, bytes_inter;         // per step, sum over the workers
  double data_wait_s = 0;                  // part of step_s spent waiting for data, mean over the workers
  std::optional<TimeSplit> times = {};
  std::optional<double> grad_norm = {};    // global norm, before clipping
  std::optional<int64_t> skipped = {};     // steps skipped so far because of a non-finite gradient
};

struct EvalMetrics {
  int64_t step, epoch;
  std::vector<std::pair<std::string, double>> values;  // "test_loss", "test_top1", …
};

// Creates the folder `wanted` and its parents, or runs/<name>-<date>-<time> if `wanted` is empty. Returns the path.
// Throws if the folder cannot be written or, unless the run is resumed, contains a nonempty metrics.jsonl.
std::string create_run_dir(const std::string& wanted, const std::string& name, bool resumed = false);

// Appends JSON objects to metrics.jsonl, one per line. A line is written immediately and completely; on an error it is
// removed and the call throws. Non-finite numbers become null.
class RunLog {
 public:
  // Writes config.json atomically. Throws if another run uses the directory. resumed_at: bytes of metrics.jsonl at the
  // checkpoint of the resumed run; later lines are removed.
  RunLog(std::string dir, const std::string& config_json, std::optional<int64_t> resumed_at = {});
  ~RunLog();
  RunLog(const RunLog&) = delete;

  void step(const StepMetrics& metrics);
  void evaluation(const EvalMetrics& metrics);
  void interrupted(int64_t step, int64_t epoch);  // the step at which the run stopped
  void file(const std::string& name, const std::string& text);  // another file of the run, written atomically
  const std::string& path() const { return dir_; }
  int64_t size() const { return size_; }  // bytes of metrics.jsonl
  void sync();                            // writes metrics.jsonl to disk

 private:
  void append(const std::string& line);
  std::string dir_;
  std::FILE* file_;   // written through its descriptor, so nothing is buffered
  int64_t size_ = 0;  // bytes of complete lines
};

}  // namespace godwit::apps
