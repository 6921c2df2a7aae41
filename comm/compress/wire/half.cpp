#include "comm/compress/wire/half.h"

#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "engine/vector_loop.h"

namespace godwit {
namespace {

constexpr int64_t kHalfGrain = 1 << 16;  // minimum number of values per thread

template <class F>
void dispatch_half(DType dtype, const char* operation, F&& f) {
  if (dtype == DType::bf16) return f.template operator()<bf16>();
  check(dtype == DType::f16, operation, ": a 16-bit wire is bfloat16 or float16, not ", dtype);
  f.template operator()<f16>();
}

}  // namespace

Tensor to_half(Cpu, const Tensor& x, DType wire, const char* operation) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  Tensor result(x.shape(), wire, kCpu);
  dispatch_half(wire, operation, [&]<class T>() {
    const float* from = x.data<float>();
    T* to = result.data<T>();
    std::atomic<bool> lost{false};
    vector_for(x.numel(), kHalfGrain, [=, &lost](int64_t begin, int64_t end) GODWIT_INLINE {
      uint32_t any = 0;
      for (int64_t i = begin; i < end; ++i) {
        to[i] = T(from[i]);
        const float size = from[i] < 0 ? -from[i] : from[i], sent = to[i] < 0 ? -float{to[i]} : float{to[i]};
        any |= static_cast<uint32_t>(size <= kLargest) & static_cast<uint32_t>(sent > kLargest);
      }
      if (any) lost = true;
    });
    if (!lost) return;
    for (int64_t i = 0; i < x.numel(); ++i)
      if (std::abs(from[i]) <= kLargest && std::abs(float{to[i]}) > kLargest) fail_overflow(operation, from[i], wire);
  });
  return result;
}

void fail_overflow(const std::string& operation, float value, DType wire) {
  fail(operation, ": the value ", value, " overflows ", wire,
       wire == DType::f16 ? "; send bfloat16 (exchange.wire=bf16, or optimizer.dense_wire=bf16)" : "");
}

void from_half(Cpu, const Tensor& halves, const Tensor& x) {
  check(halves.numel() == x.numel(), "from_half: ", halves.numel(), " values for a tensor of ", x.numel());
  dispatch_half(halves.dtype(), "from_half", [&]<class T>() {
    const T* from = halves.data<T>();
    float* to = x.data<float>();
    vector_for(x.numel(), kHalfGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t i = begin; i < end; ++i) to[i] = from[i];
    });
  });
}

void mean_of_halves(Cpu, const Tensor& parts, int divisor, const Tensor& mean) {
  const int64_t n = mean.numel(), senders = n ? parts.numel() / n : 0;
  check(parts.numel() == senders * n && parts.dtype() == mean.dtype() && divisor > 0, "mean_of_halves: ", parts.dtype(),
        " ", parts.shape(), " to ", mean.dtype(), " ", mean.shape(), ", divided by ", divisor);
  dispatch_half(mean.dtype(), "mean_of_halves", [&]<class T>() {
    const T* from = parts.data<T>();
    T* to = mean.data<T>();
    vector_for(n, kHalfGrain, [=, by = static_cast<float>(divisor)](int64_t begin, int64_t end) GODWIT_INLINE {
      constexpr int64_t kBlock = 2048;
      std::array<float, kBlock> sum;
      for (int64_t at = begin; at < end; at += kBlock) {
        const int64_t count = std::min(kBlock, end - at);
        for (int64_t i = 0; i < count; ++i) sum[static_cast<size_t>(i)] = from[at + i];
        for (int64_t sender = 1; sender < senders; ++sender)
          for (int64_t i = 0; i < count; ++i) sum[static_cast<size_t>(i)] += from[sender * n + at + i];
        for (int64_t i = 0; i < count; ++i) to[at + i] = T(sum[static_cast<size_t>(i)] / by);
      }
    });
  });
}

}  // namespace godwit
