#include "apps/train/save_weights.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "apps/train/interrupt.h"
#include "engine/check.h"
#include "engine/clock.h"

namespace godwit::apps {
namespace {

constexpr double kPause = 10;  // seconds
constexpr std::chrono::milliseconds kLook{50};

std::string new_temporary_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "godwit-weights-XXXXXX").string();
  check(::mkdtemp(name.data()) != nullptr, name, ": cannot be created");
  return name;
}

// Returns the error text; empty on success.
std::string attempt(const std::function<void(const std::string&)>& save, const std::string& folder) {
  try {
    save(folder);
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

Saved save_with_retries(const std::function<void(const std::string& folder)>& save, const std::string& folder,
                        double patience_s, const std::function<void(const std::string&)>& warn) {
  const auto start = Clock::now();
  const auto left_s = [&] {
    return interrupted() ? 0 : patience_s - seconds_since(start);
  };
  std::string error = attempt(save, folder);
  if (!error.empty() && left_s() > 0)
    warn(detail::concat(error, "; retrying every ", std::min(kPause, patience_s), " s for ", patience_s,
                        " s; free space there"));
  while (!error.empty() && left_s() > 0) {
    for (double until = left_s() - kPause; left_s() > std::max(until, 0.0);) std::this_thread::sleep_for(kLook);
    error = attempt(save, folder);
  }
  if (error.empty()) return {folder, ""};
  std::string elsewhere, reason;
  try {
    elsewhere = new_temporary_folder();
    reason = attempt(save, elsewhere);
  } catch (const std::exception& failure) {
    reason = failure.what();
  }
  if (reason.empty()) return {elsewhere, error};
  std::error_code ignored;
  if (!elsewhere.empty()) std::filesystem::remove_all(elsewhere, ignored);
  fail(error, "; the weights are lost, because the temporary folder ($TMPDIR) failed too: ", reason);
}

}  // namespace godwit::apps
