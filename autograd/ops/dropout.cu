#include <cmath>

#include "autograd/ops/dropout.h"
#include "engine/cuda/rows.h"
#include "engine/random_words.h"

namespace godwit {
namespace {

// Elements per thread: at least the four of one Philox counter, and 16 bytes.
template <class T>
constexpr int kWidth = kPack<T> > 4 ? kPack<T> : 4;

// Each thread draws the words of its elements. If `packed`, it loads and stores all of its elements together.
template <class T>
__global__ void dropout_kernel(RngKey rng, const uint32_t* counter, int32_t dropped, compute_t<T> scale, int64_t n,
                               bool packed, const T* from, T* to) {
  if (counter) rng.step = *counter;
  using C = compute_t<T>;
  constexpr int kCount = kWidth<T>;
  for (int64_t i = grid_thread() * kCount; i < n; i += grid_threads() * kCount) {
    uint32_t words[kCount];
    for (int k = 0; k < kCount; k += 4) {
      const auto four = philox4x32({static_cast<uint32_t>((i + k) / 4), rng.step, rng.purpose, rng.sender},
                                   {static_cast<uint32_t>(rng.seed), static_cast<uint32_t>(rng.seed >> 32)});
      for (int j = 0; j < 4; ++j) words[k + j] = four[j];
    }
    const auto result = [&](int k, T x) {
      return static_cast<T>(static_cast<int32_t>(words[k] >> 8) < dropped ? C(0) : C(x) * scale);
    };
    if (packed && i + kCount <= n) {
      auto x = detail::load_pack<kCount>(from + i, 0);
      for (int k = 0; k < kCount; ++k) x.values[k] = result(k, x.values[k]);
      detail::store_pack(to + i, x);
    } else {
#pragma unroll
      for (int k = 0; k < kCount; ++k)
        if (i + k < n) to[i + k] = result(k, from[i + k]);
    }
  }
}

}  // namespace

void dropout_forward(Cuda device, const Tensor& x, double p, const DropoutKey& key, const Tensor& y) {
  check_like(y, x, "dropout", "y");
  const uint32_t* const counter = key.counter.defined() ? key.counter.cuda_data<uint32_t>() : nullptr;
  const auto dropped = static_cast<int32_t>(std::ceil(p * 0x1p24));  // U < p in units of 2⁻²⁴
  dispatch_float(x.dtype(), "dropout", [&]<class T>() {
    const bool packed = aligned_to<16>(x.address(), y.address());
    launch(device, "dropout", dropout_kernel<T>, blocks_for(device, (x.numel() + kWidth<T> - 1) / kWidth<T>), kBlock,
           key.rng(), counter, dropped, static_cast<compute_t<T>>(1 / (1 - p)), x.numel(), packed, x.cuda_data<T>(),
           y.cuda_data<T>());
  });
}

}  // namespace godwit
