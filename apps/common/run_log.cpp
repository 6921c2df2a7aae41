#include "apps/common/run_log.h"

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

// %.9g gives a float32 back exactly.
std::string number(double value, const char* format = "%.9g") {
  if (!std::isfinite(value)) return "null";
  char text[400];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// Under another name first, so that a reader sees the old file or the whole new one.
void write_whole(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  check(file != nullptr, temporary, ": cannot be written (", std::strerror(errno), ")");
  bool good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  good = std::fflush(file) == 0 && good;
  good = ::fsync(::fileno(file)) == 0 && good;
  good = std::fclose(file) == 0 && good;
  good = good && std::rename(temporary.c_str(), path.c_str()) == 0;
  if (good) return;
  const std::string reason = std::strerror(errno);
  std::remove(temporary.c_str());
  fail(path, ": writing failed (", reason, ")");
}

std::string fresh_dir(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  const std::string base = "runs/" + name + "-" + stamp;
  std::string dir = base;
  std::error_code error;
  fs::create_directories("runs", error);
  for (int i = 2; !fs::create_directory(dir, error); ++i) {  // false when another run has just made it
    check(!error && i < 1000, "run directory ", dir, ": cannot be created (", error.message(),
          "); choose another, --run-dir DIR");
    dir = base + "-" + std::to_string(i);
  }
  return dir;
}

}  // namespace

std::string create_run_dir(const std::string& wanted, const std::string& name) {
  if (wanted.empty()) return fresh_dir(name);
  std::error_code error;
  fs::create_directories(wanted, error);
  check(fs::is_directory(wanted), "run directory ", wanted, ": cannot be created (",
        error ? error.message() : "a file of this name is there", ")");
  check(!fs::exists(metrics_file(wanted), error), "run directory ", wanted,
        ": holds the metrics of another run; choose another --run-dir or remove this one");
  check(::access(wanted.c_str(), W_OK | X_OK) == 0, "run directory ", wanted, ": cannot be written (",
        std::strerror(errno), ")");
  return wanted;
}

RunLog::RunLog(std::string dir, const std::string& config_json) : dir_(std::move(dir)) {
  file_ = std::fopen(metrics_file(dir_).c_str(), "wbx");  // x: two runs that start together do not share it
  check(file_ != nullptr, metrics_file(dir_), ": cannot be created (", std::strerror(errno), ")");
  try {
    write_whole(dir_ + "/config.json", config_json + "\n");
  } catch (...) {
    std::fclose(file_);
    std::remove(metrics_file(dir_).c_str());
    throw;
  }
}

RunLog::~RunLog() { std::fclose(file_); }

void RunLog::append(const std::string& line) {
  const bool good = std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fflush(file_) == 0;
  check(good, metrics_file(dir_), ": writing failed (", std::strerror(errno), ")");
}

void RunLog::step(const StepMetrics& m) {
  append(detail::concat("{\"step\": ", m.step, ", \"epoch\": ", m.epoch, ", \"loss\": ", number(m.loss),
                        ", \"lr\": ", number(m.lr), ", \"samples_per_s\": ", number(m.samples_per_s),
                        ", \"step_s\": ", number(m.step_s), ", \"bytes_intra\": ", number(m.bytes_intra, "%.0f"),
                        ", \"bytes_inter\": ", number(m.bytes_inter, "%.0f"), "}\n"));
}

void RunLog::evaluation(const EvalMetrics& m) {
  append(detail::concat("{\"step\": ", m.step, ", \"epoch\": ", m.epoch, ", \"test_loss\": ", number(m.test_loss),
                        ", \"test_top1\": ", number(m.test_top1), ", \"test_top5\": ", number(m.test_top5), "}\n"));
}

}  // namespace godwit::apps
