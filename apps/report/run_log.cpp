#include "apps/report/run_log.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "apps/report/files.h"
#include "engine/check.h"
#include "optim/checkpoint.h"

namespace godwit::apps {
namespace {

namespace fs = std::filesystem;

std::string metrics_file(const std::string& dir) { return dir + "/metrics.jsonl"; }

// Nine digits restore a float32 exactly.
std::string number(double value, const char* format = "%.9g") {
  if (!std::isfinite(value)) return "null";
  char text[400];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

constexpr const char* kRemedy = "; choose another with --run-dir DIR";

void make_folders(const std::string& dir) {
  std::error_code error, unknown;
  fs::create_directories(dir, error);
  if (fs::is_directory(dir, unknown)) return;
  const std::string reason = fs::exists(dir, unknown) || !error ? "a file with this name exists" : error.message();
  fail("run directory ", dir, ": cannot be created (", reason, ")", kRemedy);
}

[[noreturn]] void fail_in_use(const std::string& dir) {
  fail("run directory ", dir, ": another run is writing there", kRemedy);
}

[[noreturn]] void fail_taken(const std::string& dir) {
  fail("run directory ", dir, ": contains metrics of another run; choose another --run-dir or remove the folder");
}

// Throws if the folder is not a run directory and has a file that a run would replace. A resumed run may have lost its
// metrics.
void check_foreign_files(const std::string& dir, bool resumed) {
  std::error_code unknown;
  if (fs::exists(metrics_file(dir), unknown) || (resumed && fs::exists(dir + "/metrics.old.jsonl", unknown)) ||
      !newest_checkpoint(dir + "/checkpoints").empty()) return;
  for (const char* name :
       {"config.json", "summary.json", "trace.json", "weights.safetensors", "ema.safetensors", "model", "ema",
        "vocab.txt", "samples.txt", "skipped.txt", "predictions.json", "nbest_predictions.json", "report.html"})
    check(!fs::exists(fs::symlink_status(fs::path(dir) / name, unknown)), "run directory ", dir,
          ": is not of a run, and the run would replace ", name, " there", kRemedy);
}

// Whether the first `kept` bytes of metrics end with a whole line, and its step is at most `step`.
bool are_metrics_of(const std::string& path, int64_t kept, int64_t step) {
  constexpr int64_t kLongestLine = 1 << 16;
  std::ifstream in(path, std::ios::binary);
  const int64_t begin = std::max<int64_t>(0, kept - kLongestLine);
  std::string end(static_cast<size_t>(kept - begin), '\0');
  in.seekg(begin);
  in.read(end.data(), std::ssize(end));
  if (end.empty()) return true;
  if (!in.good() || end.back() != '\n') return false;
  const size_t before = end.rfind('\n', end.size() - 2);  // npos + 1 is 0
  long long last = 0;
  return std::sscanf(end.c_str() + before + 1, "{\"step\": %lld", &last) == 1 && last <= step;
}

// Renames metrics to metrics.old.jsonl or, if this file exists, to metrics.old-2.jsonl, metrics.old-3.jsonl, …
std::string set_aside(const std::string& dir) {
  std::string old = dir + "/metrics.old.jsonl";
  std::error_code unknown;
  for (int i = 2; fs::exists(fs::symlink_status(old, unknown)); ++i)
    old = detail::concat(dir, "/metrics.old-", i, ".jsonl");
  if (std::rename(metrics_file(dir).c_str(), old.c_str()) != 0) fail_writing(old, errno);
  return old;
}

bool is_file_at(std::FILE* file, const std::string& path) {
  struct stat opened {}, there {};
  return ::fstat(::fileno(file), &opened) == 0 && ::stat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino &&
         opened.st_dev == there.st_dev;
}

// Opens a new file, an empty file of a run that never trained, or the metrics of a resumed run. A lock excludes
// concurrent runs. Without locks, a new run accepts only a new file. Renames the metrics and sets `notice` if a resumed
// run starts anew, or if they do not fit its checkpoint.
std::FILE* open_metrics(const std::string& dir, std::optional<ResumedAt> resumed, std::string* notice) {
  const std::string path = metrics_file(dir);
  std::FILE* file = std::fopen(path.c_str(), "wbx");
  const bool fresh = file != nullptr;
  if (!fresh && errno == EEXIST) {
    std::error_code unknown;
    check(fs::is_regular_file(path, unknown), path, ": is not a regular file; remove it");
    file = std::fopen(path.c_str(), "ab");
  }
  if (!file) fail_writing(path, errno);
  bool locked = ::flock(::fileno(file), LOCK_EX | LOCK_NB) == 0 || ((fresh || resumed) && errno != EWOULDBLOCK);
  locked = locked && is_file_at(file, path);  // another run may have set it aside
  if (locked && std::fseek(file, 0, SEEK_END) == 0) {
    const int64_t size = std::ftell(file), kept = resumed ? resumed->metrics_bytes : 0;
    const bool continues = resumed && size >= kept && resumed->step > 0 && are_metrics_of(path, kept, resumed->step);
    if (size == kept && (continues || kept == 0)) return file;
    if (continues && ::ftruncate(::fileno(file), kept) == 0) return file;
    if (resumed && size == 0) {
      *notice = detail::concat(path, " is missing or empty, but the run had written ", kept, " bytes; a new file begins ",
                               "after step ", resumed->step);
      return file;
    }
    if (resumed) {
      const std::string old = set_aside(dir);
      std::fclose(file);
      *notice = resumed->step == 0
                    ? "the run starts at step 1, because it has no complete checkpoint; its earlier metrics are now " + old
                    : detail::concat(path, " has ", size, " bytes, but not the ", kept, " bytes that the run had written; ",
                                     "it is now ", old, ", and a new file begins after step ", resumed->step);
      return open_metrics(dir, std::nullopt, notice);
    }
  }
  std::fclose(file);
  if (locked) fail_taken(dir);
  fail_in_use(dir);
}

std::string fresh_dir(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  const std::string base = "runs/" + name + "-" + stamp;
  std::string dir = base;
  make_folders("runs");
  std::error_code error;
  for (int i = 2; !fs::create_directory(dir, error); ++i) {  // false if another run has just created it
    check(!error && i < 1000, "run directory ", dir, ": cannot be created (",
          error ? error.message() : "1000 folders with this name exist", ")", kRemedy);
    dir = base + "-" + std::to_string(i);
  }
  return dir;
}

}  // namespace

std::string create_run_dir(const std::string& wanted, const std::string& name, bool resumed) {
  if (wanted.empty()) return fresh_dir(name);
  make_folders(wanted);
  if (::access(wanted.c_str(), W_OK | X_OK) != 0) {
    const std::string reason = std::strerror(errno);
    fail("run directory ", wanted, ": cannot be written (", reason, ")", kRemedy);
  }
  std::error_code error;
  const auto size = fs::file_size(metrics_file(wanted), error);
  if (!error && size > 0 && !resumed) fail_taken(wanted);
  check_foreign_files(wanted, resumed);
  return wanted;
}

RunLock::RunLock(const std::string& dir) {
  metrics_.reset(std::fopen(metrics_file(dir).c_str(), "r+b"));  // a lock of NFS needs a file open for writing
  if (metrics_ && ::flock(::fileno(metrics_.get()), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) fail_in_use(dir);
}

RunLog::RunLog(std::string dir, const std::string& config_json, bool tensorboard, std::optional<ResumedAt> resumed)
    : dir_(std::move(dir)),
      metrics_(open_metrics(dir_, resumed, &notice_), metrics_file(dir_)) {
  try {
    if (resumed && !resumed->complete) std::remove((dir_ + "/summary.json").c_str());  // of the part before the resume
    if (tensorboard) events_ = std::make_unique<EventFile>(dir_, resumed ? std::optional(resumed->step) : std::nullopt);
    write_whole(dir_ + "/config.json", config_json + "\n");  // last, because a folder with this file alone is refused
  } catch (...) {
    if (!resumed) std::remove(metrics_file(dir_).c_str());
    throw;
  }
}

void RunLog::sync() {
  metrics_.sync();
  if (events_) events_->sync();
}

void RunLog::file(const std::string& name, const std::string& text) { write_whole(dir_ + "/" + name, text); }

void RunLog::step(const StepMetrics& m) {
  const TimeSplit& t = m.times;
  std::string line = detail::concat(
      "{\"step\": ", m.step, ", \"epoch\": ", m.epoch, ", \"loss\": ", number(m.loss), ", \"lr\": ", number(m.lr),
      ", \"samples_per_s\": ", number(m.samples_per_s), ", \"step_s\": ", number(t.total),
      ", \"bytes_intra\": ", number(m.bytes_intra, "%.0f"), ", \"bytes_inter\": ", number(m.bytes_inter, "%.0f"));
  Scalars scalars = {{"train/loss", m.loss},
                     {"train/lr", m.lr},
                     {"train/samples_per_s", m.samples_per_s},
                     {"bytes/intra", m.bytes_intra},
                     {"bytes/inter", m.bytes_inter},
                     {"time/step", t.total}};
  const auto add = [&](const std::string& key, const std::string& tag, double value) {
    line += ", \"" + key + "\": " + number(value);
    scalars.emplace_back(tag, value);
  };
  if (m.accuracy) add("accuracy", "train/accuracy", *m.accuracy);
  const auto add_time = [&](const std::string& name, double value) { add(name + "_s", "time/" + name, value); };
  for (const auto& [name, part] : kTimeParts)
    if (part != &TimeSplit::total) add_time(name, t.*part);
  add_time("computation", t.computation());
  add_time("waiting", t.waiting());
  add_time("other", t.other());
  if (m.grad_norm) add("grad_norm", "train/grad_norm", *m.grad_norm);
  if (m.skipped) add("skipped", "train/skipped", static_cast<double>(*m.skipped));
  metrics_.append(line + "}\n");
  if (events_) events_->scalars(m.step, scalars);
}

void RunLog::evaluation(const EvalMetrics& m) {
  std::string line = detail::concat("{\"step\": ", m.step, ", \"epoch\": ", m.epoch);
  Scalars scalars;
  for (const auto& [name, value] : m.values) {
    line += ", \"" + name + "\": " + number(value);
    scalars.emplace_back("evaluation/" + name, value);
  }
  metrics_.append(line + "}\n");
  if (events_) events_->scalars(m.step, scalars);
}

void RunLog::interrupted(int64_t step, int64_t epoch) {
  metrics_.append(detail::concat("{\"step\": ", step, ", \"epoch\": ", epoch, ", \"interrupted\": true}\n"));
}

}  // namespace godwit::apps
