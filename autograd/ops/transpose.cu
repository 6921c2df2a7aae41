#include "autograd/ops/transpose.h"
#include "engine/cuda/rows.h"

namespace godwit {
namespace {

// Column c of row (i, j) of y [n, b, a] from x [n, a, b].
template <class T>
struct Transposed {
  uint32_t a, b;
  const T* x;
  template <int n>
  __device__ void operator()(uint32_t row, uint32_t c, T (&values)[n]) const {
    const uint32_t i = row / b, j = row - i * b;
    for (int k = 0; k < n; ++k) values[k] = x[(int64_t{i} * a + c + k) * b + j];
  }
};

}  // namespace

void transpose_forward(Cuda device, const Tensor& x, const Tensor& y) {
  dispatch_float(x.dtype(), "transpose", [&]<class T>() {
    const uint32_t a = index_count("transpose", x.dim(1)), b = index_count("transpose", x.dim(2));
    generate_rows(device, "transpose", y.dim(0) * b, a, a, Transposed<T>{a, b, x.cuda_data<T>()}, y.cuda_data<T>());
  });
}

}  // namespace godwit
