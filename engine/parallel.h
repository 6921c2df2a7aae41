// Parallel loops over contiguous ranges.
#pragma once
#include <algorithm>
#include <cstdint>
#include <exception>

#include "engine/context.h"

namespace godwit {

// Calls f(begin, end) on disjoint ranges that cover [0, n), on up to context().threads threads. Every range except the
// last has at least `grain` elements and a multiple of `align` elements. Results must not depend on the split. Rethrows
// the first exception thrown by f.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f, int64_t align = 1) {
  const int64_t parts = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, context().threads);
  if (parts == 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
  const int64_t length = ((n + parts - 1) / parts + align - 1) / align * align;
  std::exception_ptr error;
#pragma omp parallel for num_threads(static_cast<int>(parts)) schedule(static, 1)
  for (int64_t part = 0; part < parts; ++part) {
    try {
      const int64_t begin = part * length, end = std::min(n, begin + length);
      if (begin < end) f(begin, end);
    } catch (...) {
#pragma omp critical(godwit_parallel_error)
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace godwit
