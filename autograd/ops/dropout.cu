#include <cmath>

#include "autograd/ops/dropout.h"
#include "engine/cuda/elementwise.h"
#include "engine/random_words.h"

namespace godwit {
namespace {

// Each thread draws the four words of one Philox counter. With `packed`, it accesses their four elements at once.
template <class T>
__global__ void dropout_kernel(RngKey rng, const uint32_t* counter, int32_t dropped, compute_t<T> scale, int64_t n,
                               bool packed, const T* from, T* to) {
  if (counter) rng.step = *counter;
  using C = compute_t<T>;
  using Four = detail::Pack<T, 4>;
  for (int64_t four = grid_thread(); four * 4 < n; four += grid_threads()) {
    const auto words = philox4x32({static_cast<uint32_t>(four), rng.step, rng.purpose, rng.sender},
                                  {static_cast<uint32_t>(rng.seed), static_cast<uint32_t>(rng.seed >> 32)});
    const auto result = [&](int k, T x) {
      return static_cast<T>(static_cast<int32_t>(words[k] >> 8) < dropped ? C(0) : C(x) * scale);
    };
    if (packed && four * 4 + 4 <= n) {
      Four x = reinterpret_cast<const Four*>(from)[four];
      for (int k = 0; k < 4; ++k) x.values[k] = result(k, x.values[k]);
      reinterpret_cast<Four*>(to)[four] = x;
    } else {
      for (int k = 0; k < 4 && four * 4 + k < n; ++k) to[four * 4 + k] = result(k, from[four * 4 + k]);
    }
  }
}

}  // namespace

void dropout_forward(Cuda device, const Tensor& x, double p, const DropoutKey& key, const Tensor& y) {
  check_like(y, x, "dropout", "y");
  const uint32_t* const counter = key.counter.defined() ? key.counter.cuda_data<uint32_t>() : nullptr;
  const auto dropped = static_cast<int32_t>(std::ceil(p * 0x1p24));  // U < p in units of 2⁻²⁴
  dispatch_float(x.dtype(), "dropout", [&]<class T>() {
    const bool packed = aligned_to<alignof(detail::Pack<T, 4>)>(x.address(), y.address());
    launch(device, "dropout", dropout_kernel<T>, blocks_for(device, (x.numel() + 3) / 4), kBlock, key.rng(), counter,
           dropped, static_cast<compute_t<T>>(1 / (1 - p)), x.numel(), packed, x.cuda_data<T>(), y.cuda_data<T>());
  });
}

}  // namespace godwit
