#include "comm/compress/wire/half.h"

#include <cmath>
#include <limits>

#include "engine/cuda/update.h"

namespace godwit {
namespace {

template <class F>
void dispatch_half(DType dtype, const char* operation, F&& f) {
  if (dtype == DType::bf16) return f.template operator()<bf16>();
  check(dtype == DType::f16, operation, ": a 16-bit wire is bfloat16 or float16, not ", dtype);
  f.template operator()<f16>();
}

// Sets `lost` to 1 if a finite value overflows T.
template <class T>
struct Round {
  uint32_t* lost;
  __device__ void operator()(int64_t, float x, T& to) const {
    constexpr float kLargest = std::numeric_limits<float>::max();
    to = T(x);
    if (std::abs(x) <= kLargest && std::abs(float{to}) > kLargest) atomicOr(lost, 1u);
  }
};

template <class T>
struct Mean {
  const T* parts;
  int64_t n, senders;
  float divisor;
  __device__ float operator()(int64_t i) const {
    float sum = parts[i];
    for (int64_t sender = 1; sender < senders; ++sender) sum = sum + float{parts[sender * n + i]};
    return sum / divisor;
  }
};

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
  if (lost.item() != 0) to_half(Cpu{}, x.to(kCpu), wire, operation);  // throws with the value
  return result;
}

void from_half(Cuda device, const Tensor& halves, const Tensor& x) {
  check(halves.numel() == x.numel(), "from_half: ", halves.numel(), " values to ", x.numel());
  dispatch_half(halves.dtype(), "from_half", [&]<class T>() {
    elementwise(device, "from_half", x.numel(), Same{}, x.cuda_data<float>(), halves.cuda_data<T>());
  });
}

void mean_of_halves(Cuda device, const Tensor& parts, int divisor, const Tensor& mean) {
  const int64_t n = mean.numel(), senders = n ? parts.numel() / n : 0;
  check(parts.numel() == senders * n && parts.dtype() == mean.dtype() && divisor > 0, "mean_of_halves: ", parts.dtype(),
        " ", parts.shape(), " to ", mean.dtype(), " ", mean.shape(), ", divided by ", divisor);
  dispatch_half(mean.dtype(), "mean_of_halves", [&]<class T>() {
    generate(device, "mean_of_halves", n, Mean<T>{parts.cuda_data<T>(), n, senders, static_cast<float>(divisor)},
             mean.cuda_data<T>());
  });
}

}  // namespace godwit
