// The run directory: config.json and metrics.jsonl.
#pragma once
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace godwit::apps {

// Where a step's time went, in seconds, means over the workers. See StepTimes in optim/data_parallel.h.
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
  double bytes_intra, bytes_inter;         // of the step, all workers together
  double data_wait_s = 0;                  // of step_s: waiting for data, mean over the workers
  std::optional<TimeSplit> times = {};
  std::optional<double> grad_norm = {};    // of all gradients, before clipping
  std::optional<int64_t> skipped = {};     // steps so far with a gradient that was not finite
};

struct EvalMetrics {
  int64_t step, epoch;
  std::vector<std::pair<std::string, double>> values;  // "test_loss", "test_top1", …
};

// Creates `wanted` (parents too), or, when it is empty, a new folder runs/<name>-<date>-<time>. Returns its path.
// Throws when `wanted` already holds metrics of another run or cannot be written; an empty metrics.jsonl is none.
std::string create_run_dir(const std::string& wanted, const std::string& name);

// Appends to metrics.jsonl one JSON object per line, at once and whole or, with an Error, not at all; a number that is
// not finite becomes null.
class RunLog {
 public:
  RunLog(std::string dir, const std::string& config_json);  // writes config.json, whole or not at all; throws
                                                            // when another run has the directory
  ~RunLog();
  RunLog(const RunLog&) = delete;

  void step(const StepMetrics& metrics);
  void evaluation(const EvalMetrics& metrics);
  void interrupted(int64_t step, int64_t epoch);  // where a run was stopped
  void file(const std::string& name, const std::string& text);  // another file of the run, whole or not at all
  const std::string& path() const { return dir_; }

 private:
  void append(const std::string& line);
  std::string dir_;
  std::FILE* file_;   // written to by its descriptor: nothing is buffered
  int64_t size_ = 0;  // of the whole lines
};

}  // namespace godwit::apps
