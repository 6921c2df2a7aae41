#include "apps/report/run_log.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "engine/check.h"

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

[[noreturn]] void fail_writing(const std::string& path, int error) {
  fail(path, ": cannot be written (", std::strerror(error), "); ", error == ENOSPC ? "free space there or " : "",
       "choose another --run-dir");
}

// Writes under a temporary name and renames, so that a reader sees either the old or the complete new file.
void write_whole(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (!file) fail_writing(temporary, errno);
  int error = 0;  // of the first failed call
  auto note = [&](bool good) {
    if (!good && error == 0) error = errno;
  };
  note(std::fwrite(text.data(), 1, text.size(), file) == text.size());
  note(std::fflush(file) == 0);
  note(::fsync(::fileno(file)) == 0);
  note(std::fclose(file) == 0);
  if (error == 0) note(std::rename(temporary.c_str(), path.c_str()) == 0);
  if (error == 0) return;
  std::remove(temporary.c_str());
  fail_writing(path, error);
}

void make_folders(const std::string& dir) {
  std::error_code error, unknown;
  fs::create_directories(dir, error);
  if (fs::is_directory(dir, unknown)) return;
  const std::string reason = fs::exists(dir, unknown) || !error ? "a file with this name exists" : error.message();
  fail("run directory ", dir, ": cannot be created (", reason, ")", kRemedy);
}

[[noreturn]] void fail_taken(const std::string& dir) {
  fail("run directory ", dir, ": contains metrics of another run; choose another --run-dir or remove the folder");
}

// Opens a new file, or an empty file of a run that never trained. A lock excludes concurrent runs. On file systems
// without locks, only a new file is accepted.
std::FILE* open_metrics(const std::string& dir, std::optional<int64_t> resumed_at) {
  const std::string path = metrics_file(dir);
  std::FILE* file = std::fopen(path.c_str(), "wbx");
  const bool fresh = file != nullptr;
  if (!fresh && errno == EEXIST) file = std::fopen(path.c_str(), "ab");
  if (!file) fail_writing(path, errno);
  const bool locked =
      ::flock(::fileno(file), LOCK_EX | LOCK_NB) == 0 || ((fresh || resumed_at) && errno != EWOULDBLOCK);
  if (locked && std::fseek(file, 0, SEEK_END) == 0) {
    const int64_t size = std::ftell(file), kept = resumed_at.value_or(0);
    if (size == kept) return file;
    if (size > kept && resumed_at && ::ftruncate(::fileno(file), kept) == 0) return file;
    if (resumed_at) {
      std::fclose(file);
      fail(path, ": has ", size, " bytes, but the checkpoint is of a run that had written ", kept,
           "; it is damaged or of another run");
    }
  }
  std::fclose(file);
  if (locked) fail_taken(dir);
  fail("run directory ", dir, ": another run is writing there", kRemedy);
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
  return wanted;
}

RunLog::RunLog(std::string dir, const std::string& config_json, std::optional<int64_t> resumed_at)
    : dir_(std::move(dir)), file_(open_metrics(dir_, resumed_at)), size_(resumed_at.value_or(0)) {
  try {
    write_whole(dir_ + "/config.json", config_json + "\n");
  } catch (...) {
    std::fclose(file_);
    if (!resumed_at) std::remove(metrics_file(dir_).c_str());
    throw;
  }
}

RunLog::~RunLog() { std::fclose(file_); }

void RunLog::append(const std::string& line) {
  const int descriptor = ::fileno(file_);
  for (size_t done = 0; done < line.size();) {
    const ssize_t put = ::write(descriptor, line.data() + done, line.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int error = errno;
      if (::ftruncate(descriptor, size_) == 0) ::lseek(descriptor, size_, SEEK_SET);
      fail_writing(metrics_file(dir_), error);
    }
    done += static_cast<size_t>(put);
  }
  size_ += std::ssize(line);
}

void RunLog::sync() {
  if (::fsync(::fileno(file_)) != 0 && errno != EINVAL) fail_writing(metrics_file(dir_), errno);
}

void RunLog::file(const std::string& name, const std::string& text) { write_whole(dir_ + "/" + name, text); }

void RunLog::step(const StepMetrics& m) {
  std::string times;
  if (m.times)
    for (const auto& [name, seconds] : {std::pair{"computation_s", m.times->computation},
                                        {"waiting_s", m.times->waiting},
                                        {"idle_s", m.times->idle},
                                        {"compression_s", m.times->compression},
                                        {"communication_s", m.times->communication},
                                        {"update_s", m.times->update}})
      times += detail::concat(", \"", name, "\": ", number(seconds));
  append(detail::concat("{\"step\": ", m.step, ", \"epoch\": ", m.epoch, ", \"loss\": ", number(m.loss),
                        ", \"lr\": ", number(m.lr), ", \"samples_per_s\": ", number(m.samples_per_s),
                        ", \"step_s\": ", number(m.step_s), ", \"bytes_intra\": ", number(m.bytes_intra, "%.0f"),
                        ", \"bytes_inter\": ", number(m.bytes_inter, "%.0f"), ", \"data_wait_s\": ",
                        number(m.data_wait_s), times, m.grad_norm ? ", \"grad_norm\": " + number(*m.grad_norm) : "",
                        m.skipped ? ", \"skipped\": " + std::to_string(*m.skipped) : "", "}\n"));
}

void RunLog::evaluation(const EvalMetrics& m) {
  std::string line = detail::concat("{\"step\": ", m.step, ", \"epoch\": ", m.epoch);
  for (const auto& [name, value] : m.values) line += ", \"" + name + "\": " + number(value);
  append(line + "}\n");
}

void RunLog::interrupted(int64_t step, int64_t epoch) {
  append(detail::concat("{\"step\": ", step, ", \"epoch\": ", epoch, ", \"interrupted\": true}\n"));
}

}  // namespace godwit::apps
