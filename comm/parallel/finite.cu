#include "comm/parallel/finite.h"

#include <cmath>
#include <limits>

#include "engine/cuda/update.h"

namespace godwit {
namespace {

struct Find {
  int64_t n;
  unsigned long long* found;  // n − index of the first non-finite value; 0 if there is none
  template <class T>
  __device__ void operator()(int64_t i, T x) const {
    if (!(std::abs(x) <= std::numeric_limits<T>::max())) atomicMax(found, static_cast<unsigned long long>(n - i));
  }
};

}  // namespace

int64_t first_not_finite(Cuda device, const Tensor& x, int64_t n) {
  const Tensor found = Tensor::zeros({1}, DType::i64);
  const Find find{n, reinterpret_cast<unsigned long long*>(found.cuda_data<int64_t>())};
  dispatch_real(x.dtype(), "first_not_finite", [&]<class T>() {
    update_each(device, "first_not_finite", 0, n, find, static_cast<const T*>(x.cuda_data<T>()));
  });
  return n - found.to_vector<int64_t>()[0];
}

}  // namespace godwit
