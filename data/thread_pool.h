// Work on many items by several threads, with a progress report.
#pragma once
#include <cstdint>
#include <functional>

namespace godwit::data {

// Called about twice a second, from the thread that waits for the work.
using ProgressFunction = std::function<void(int64_t done, int64_t total)>;

// Calls f(i) for every i in [0, n), in any order, from `threads` threads (at least one). When f throws, the Error of
// the smallest i is rethrown, and what nobody has begun is left.
void parallel_for_each(int64_t n, int threads, const std::function<void(int64_t)>& f,
                   const ProgressFunction& progress = {});

}  // namespace godwit::data
