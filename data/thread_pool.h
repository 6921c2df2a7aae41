// A parallel loop over many items with a progress report.
#pragma once
#include <cstdint>
#include <functional>

namespace godwit::data {

// Called about twice per second on the thread that waits for the loop.
using ProgressFunction = std::function<void(int64_t done, int64_t total)>;

// Calls f(i) for every i in [0, n), in any order, on `threads` threads (at least 1). If f throws, the remaining items
// are skipped and the error with the smallest i is rethrown.
void parallel_for_each(int64_t n, int threads, const std::function<void(int64_t)>& f,
                   const ProgressFunction& progress = {});

}  // namespace godwit::data
