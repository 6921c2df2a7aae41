#include "comm/buckets/finite.h"

#include <cmath>
#include <limits>

#include "engine/cuda/update.h"

namespace godwit {
namespace {

struct Find {
  int64_t n;
  unsigned long long* key;
  template <class T>
  __device__ void operator()(int64_t i, T x) const {
    if (!(std::abs(x) <= std::numeric_limits<T>::max()))
      atomicMax(key, static_cast<unsigned long long>(not_finite_key(n, i, x)));
  }
};

}  // namespace

Tensor first_not_finite_key(Cuda device, const Tensor& x, int64_t n) {
  const Tensor key = Tensor::zeros({1}, DType::i64);
  const Find find{n, reinterpret_cast<unsigned long long*>(key.cuda_data<int64_t>())};
  dispatch_real(x.dtype(), "first_not_finite", [&]<class T>() {
    update_each(device, "first_not_finite", 0, n, find, static_cast<const T*>(x.cuda_data<T>()));
  });
  return key;
}

}  // namespace godwit
