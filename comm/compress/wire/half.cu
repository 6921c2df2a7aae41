#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "comm/compress/wire/half.h"
#include "engine/cuda/rows.h"
#include "engine/cuda/update.h"
#include "engine/host_reads.h"

namespace godwit {
namespace {

template <class F>
void dispatch_half(DType dtype, const char* operation, F&& f) {
  if (dtype == DType::bf16) return f.template operator()<bf16>();
  check(dtype == DType::f16, operation, ": a 16-bit wire is bfloat16 or float16, not ", dtype);
  f.template operator()<f16>();
}

// Sets `lost` to the bits of the largest magnitude of a finite value that overflows T.
template <class T>
struct Round {
  uint32_t* lost;
  __device__ void operator()(int64_t, float x, T& to) const {
    constexpr float kLargest = std::numeric_limits<float>::max();
    to = T(x);
    if (std::abs(x) <= kLargest && std::abs(float{to}) > kLargest)
      atomicMax(lost, std::bit_cast<uint32_t>(std::abs(x)));
  }
};

template <int n, class T>
__device__ void mean_at(const T* parts, int64_t count, int64_t senders, float divisor, int64_t i, T* mean) {
  float sums[n] = {};
#pragma unroll 4
  for (int64_t sender = 0; sender < senders; ++sender) {
    const auto part = detail::load_pack<n>(parts + sender * count + i, 0);
    for (int k = 0; k < n; ++k) sums[k] = sender == 0 ? float{part.values[k]} : sums[k] + float{part.values[k]};
  }
  detail::Pack<T, n> to;
  for (int k = 0; k < n; ++k) to.values[k] = T(sums[k] / divisor);
  detail::store_pack(mean + i, to);
}

// Processes `packs` packs of 16 bytes, then the remaining elements.
template <class T>
__global__ void half_mean_kernel(const T* parts, int64_t packs, int64_t count, int64_t senders, float divisor,
                                 T* mean) {
  constexpr int kWidth = kPack<T>;
  for (int64_t pack = grid_thread(); pack < packs; pack += grid_threads())
    mean_at<kWidth>(parts, count, senders, divisor, pack * kWidth, mean);
  for (int64_t i = packs * kWidth + grid_thread(); i < count; i += grid_threads())
    mean_at<1>(parts, count, senders, divisor, i, mean);
}

struct Same {
  __device__ float operator()(float x) const { return x; }
};

}  // namespace

Tensor to_half(Cuda device, const Tensor& x, DType wire, const char* operation) {
  Tensor result(x.shape(), wire, x.device());
  const Tensor lost = Tensor::zeros({1}, DType::u32);
  dispatch_half(wire, operation, [&]<class T>() {
    update_each(device, operation, 0, x.numel(), Round<T>{lost.cuda_data<uint32_t>()},
                static_cast<const float*>(x.cuda_data<float>()), result.cuda_data<T>());
  });
  read_on_host(lost, [wire, name = std::string(operation)](const Tensor& values) {
    if (const uint32_t bits = values.data<uint32_t>()[0]; bits != 0)
      fail_overflow(name, std::bit_cast<float>(bits), wire);
  });
  return result;
}

void from_half(Cuda device, const Tensor& halves, const Tensor& x) {
  check(halves.numel() == x.numel(), "from_half: ", halves.numel(), " values for a tensor of ", x.numel());
  dispatch_half(halves.dtype(), "from_half", [&]<class T>() {
    elementwise(device, "from_half", x.numel(), Same{}, x.cuda_data<float>(), halves.cuda_data<T>());
  });
}

void mean_of_halves(Cuda device, const Tensor& parts, int divisor, const Tensor& mean) {
  const int64_t n = mean.numel(), senders = n ? parts.numel() / n : 0;
  check(parts.numel() == senders * n && parts.dtype() == mean.dtype() && divisor > 0, "mean_of_halves: ", parts.dtype(),
        " ", parts.shape(), " to ", mean.dtype(), " ", mean.shape(), ", divided by ", divisor);
  dispatch_half(mean.dtype(), "mean_of_halves", [&]<class T>() {
    const T* from = parts.cuda_data<T>();
    T* to = mean.cuda_data<T>();
    // Packs need every part to be aligned: the first part, and the stride of the parts.
    const int64_t packs = aligned_to<16>(from, to) && (senders <= 1 || n % kPack<T> == 0) ? n / kPack<T> : 0;
    launch(device, "mean_of_halves", half_mean_kernel<T>, blocks_for(device, packs > 0 ? packs : n), kBlock, from,
           packs, n, senders, static_cast<float>(divisor), to);
  });
}

}  // namespace godwit
