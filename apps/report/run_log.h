// RunLog: the files of a run directory: config.json, metrics.jsonl and TensorBoard's event file.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/report/event_file.h"
#include "apps/report/files.h"
#include "apps/report/time_split.h"

namespace godwit::apps {

struct StepMetrics {
  int64_t step, epoch;
  double loss, lr, samples_per_s;
  double bytes_intra, bytes_inter;       // per step, summed over the workers
  TimeSplit times = {};                  // times of a step, mean over the workers
  std::optional<double> accuracy = {};   // fraction of correct answers
  std::optional<double> grad_norm = {};  // global norm before clipping
  std::optional<int64_t> skipped = {};   // number of steps skipped so far
};

struct EvalMetrics {
  int64_t step, epoch;
  std::vector<std::pair<std::string, double>> values;  // "test_loss", "test_top1", …
};

// Creates the folder `wanted` and its parents, or runs/<name>-<date>-<time> if `wanted` is empty. Returns the path.
// Throws if the folder cannot be written, if it contains a nonempty metrics.jsonl (unless the run is resumed), or if it
// is not the folder of a run but contains a file with the name of a run's file.
std::string create_run_dir(const std::string& wanted, const std::string& name, bool resumed = false);

// The position at which a resumed run continues.
struct ResumedAt {
  int64_t step;           // last step before the resume
  int64_t metrics_bytes;  // size of metrics.jsonl at that step; later lines are removed
  bool complete = false;  // whether the run takes no further step; summary.json then stays
};

// Excludes other runs from a run directory by a lock on its metrics.jsonl, as RunLog does.
class RunLock {
 public:
  RunLock() = default;  // locks nothing
  // Throws if a run is writing in the directory. Locks nothing without metrics.jsonl or locks of the file system.
  explicit RunLock(const std::string& dir);

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> metrics_{nullptr, std::fclose};
};

// Appends JSON objects to metrics.jsonl, one per line, and the same figures to TensorBoard's event file. A line is
// written immediately and completely. On an error, the line is removed and the call throws. Non-finite numbers become
// null.
class RunLog {
 public:
  // Writes config.json atomically. Throws if another run uses the directory.
  RunLog(std::string dir, const std::string& config_json, bool tensorboard, std::optional<ResumedAt> resumed = {});

  void step(const StepMetrics& metrics);
  void evaluation(const EvalMetrics& metrics);
  void interrupted(int64_t step, int64_t epoch);                // step: the step at which the run stopped
  void file(const std::string& name, const std::string& text);  // writes another file of the run atomically
  const std::string& path() const { return dir_; }
  const std::string& notice() const { return notice_; }  // about earlier metrics that moved or are missing; "": none
  int64_t size() const { return metrics_.size(); }  // size of metrics.jsonl in bytes
  void sync();                                      // syncs the files to disk

 private:
  std::string dir_, notice_;
  AppendedFile metrics_;
  std::unique_ptr<EventFile> events_;  // null if no event file is written
};

}  // namespace godwit::apps
