// Sum over ranks in rank order. The local and MPI transports share this code and therefore give the same bits.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/group.h"
#include "engine/parallel.h"

namespace godwit {

// Sums the n elements of all `in` in order, divides once if op is mean, and writes the result to every `out`. Processes
// blocks that fit in the cache, so an `out` may equal one of the `in`. Multithreaded on the CPU.
template <class T>
void reduce_in_order(Cpu, const std::vector<const T*>& in, const std::vector<T*>& out, int64_t n, Reduce op) {
  constexpr int64_t kChunk = 16384 / sizeof(T);
  const T divisor = static_cast<T>(in.size());
  parallel_for(
      n, 1 << 16,
      [&](int64_t begin, int64_t end) {
        alignas(64) T sum[kChunk];
        for (int64_t at = begin; at < end; at += kChunk) {
          const int64_t count = std::min(kChunk, end - at);
          std::copy_n(in[0] + at, count, sum);
          for (size_t peer = 1; peer < in.size(); ++peer)
            for (int64_t i = 0; i < count; ++i) sum[i] += in[peer][at + i];
          if (op == Reduce::mean)
            for (int64_t i = 0; i < count; ++i) sum[i] /= divisor;
          for (T* to : out) std::copy_n(sum, count, to + at);
        }
      },
      16);
}

// GPU version. The pointers refer to GPU memory that this device can access.
template <class T>
void reduce_in_order(Cuda device, const std::vector<const T*>& in, const std::vector<T*>& out, int64_t n, Reduce op);

// sum ← sum / ranks, in place; float32 or float64.
inline void divide(Cpu, const Tensor& sum, int ranks) {
  dispatch_real(sum.dtype(), "divide", [&]<class T>() {
    T* values = sum.data<T>();
    parallel_for(sum.numel(), 1 << 16, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] /= static_cast<T>(ranks);
    });
  });
}
void divide(Cuda device, const Tensor& sum, int ranks);

}  // namespace godwit
