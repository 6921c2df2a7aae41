#include "autograd/ops/dropout.h"

#include <bit>
#include <cmath>

#include "engine/random_words.h"
#include "engine/vector_loop.h"

namespace godwit {
namespace {

// Returns `value`, or 0 if i < 0, by bit masks.
GODWIT_INLINE inline float unless_negative(int32_t i, float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & ~static_cast<uint32_t>(i >> 31));
}
GODWIT_INLINE inline double unless_negative(int32_t i, double value) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(value) & ~static_cast<uint64_t>(int64_t{i} >> 63));
}

}  // namespace

void dropout_forward(Cpu, const Tensor& x, double p, const DropoutKey& key, const Tensor& y) {
  constexpr int64_t kChunk = 1024, kGrain = 1 << 14;
  check_like(y, x, "dropout", "y");
  const RngKey rng = key.rng();
  const auto dropped = static_cast<int32_t>(std::ceil(p * 0x1p24));  // U < p in units of 2⁻²⁴
  dispatch_float(x.dtype(), "dropout", [&]<class T>() {
    using C = compute_t<T>;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const C scale = static_cast<C>(1 / (1 - p));
    compute_for(x.numel(), kGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      alignas(64) uint32_t buffer[kChunk + kRandomSlack];
      for (int64_t chunk = begin; chunk < end; chunk += kChunk) {
        const int64_t count = std::min(kChunk, end - chunk);
        const uint32_t* word = random_words(rng, chunk, count, buffer);
        const T* in = from + chunk;
        T* out = to + chunk;
        GODWIT_IN_PLACE
        for (int64_t i = 0; i < count; ++i)
          out[i] = static_cast<T>(unless_negative(static_cast<int32_t>(word[i] >> 8) - dropped, C(in[i]) * scale));
      }
    });
  });
}

Var ops::dropout(const Var& x, double p, const DropoutKey& key) {
  check(p >= 0 && p < 1, "dropout: the probability must be in [0, 1), got ", p);
  check(key.site < 1 << 24, "dropout: the site must be below 2^24, got ", key.site);
  check(x.value().numel() <= int64_t{1} << 34, "dropout: x must have at most 2^34 elements, got ", x.shape());
  if (p == 0) return x;
  Tensor y(x.shape(), x.dtype(), x.device());
  on_device(y, [&](auto device) { dropout_forward(device, x.value(), p, key, y); });
  return Var::result(y, {x}, [dx = x.gradient(), p, key](const Tensor& dy) {
    const Tensor g = dy.shared() ? dx.target() : dy;
    on_device(dy, [&](auto device) { dropout_forward(device, dy, p, key, g); });
    dx.add(g);
  });
}

}  // namespace godwit
