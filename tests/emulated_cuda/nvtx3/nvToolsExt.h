// The part of NVTX that Godwit uses: ranges, which are recorded for tests.
#pragma once
#include <mutex>
#include <string>
#include <vector>

namespace emulated_nvtx {

inline std::mutex mutex;
inline std::vector<std::string> ended;                     // names of ended ranges of all threads
inline thread_local std::vector<std::string> open_ranges;  // open ranges of this thread

}  // namespace emulated_nvtx

inline int nvtxRangePushA(const char* name) {
  emulated_nvtx::open_ranges.emplace_back(name);
  return static_cast<int>(emulated_nvtx::open_ranges.size()) - 1;
}

inline int nvtxRangePop() {
  const std::lock_guard lock(emulated_nvtx::mutex);
  emulated_nvtx::ended.push_back(emulated_nvtx::open_ranges.back());
  emulated_nvtx::open_ranges.pop_back();
  return static_cast<int>(emulated_nvtx::open_ranges.size());
}
