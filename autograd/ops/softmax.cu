#include <limits>

#include "autograd/ops/softmax.h"
#include "engine/cuda/reduce.h"
#include "engine/vector_math.h"

namespace godwit {
namespace {

// One block per row.
template <class T>
__global__ void softmax_kernel(int64_t c, const T* x, const uint8_t* mask, T* y) {
  using C = compute_t<T>;
  const int64_t begin = blockIdx.x * c + threadIdx.x, end = (blockIdx.x + int64_t{1}) * c;
  C largest = -std::numeric_limits<C>::infinity();
  for (int64_t i = begin; i < end; i += blockDim.x)
    if (!mask || mask[i]) largest = Larger()(largest, C(x[i]));
  largest = block_reduce(largest, Larger());
  C sum = 0;
  for (int64_t i = begin; i < end; i += blockDim.x)
    if (!mask || mask[i]) sum += exp_of(C(x[i]) - largest);
  sum = block_reduce(sum, Plus());
  for (int64_t i = begin; i < end; i += blockDim.x)
    y[i] = static_cast<T>(!mask || mask[i] ? exp_of(C(x[i]) - largest) / sum : C(0));
}

template <class T>
__global__ void softmax_backward_kernel(int64_t c, const T* y, const T* dy, T* dx) {
  using C = compute_t<T>;
  const int64_t begin = blockIdx.x * c + threadIdx.x, end = (blockIdx.x + int64_t{1}) * c;
  C sum = 0;
  for (int64_t i = begin; i < end; i += blockDim.x) sum += C(y[i]) * C(dy[i]);
  sum = block_reduce(sum, Plus());
  for (int64_t i = begin; i < end; i += blockDim.x) dx[i] = static_cast<T>(C(y[i]) * (C(dy[i]) - sum));
}

}  // namespace

void softmax_forward(Cuda device, const Tensor& x, const Tensor& mask, const Tensor& y) {
  dispatch_float(x.dtype(), "softmax", [&]<class T>() {
    launch(device, "softmax", softmax_kernel<T>, x.dim(0), row_threads(x.dim(1)), x.dim(1), x.cuda_data<T>(),
           mask.defined() ? mask.cuda_data<uint8_t>() : nullptr, y.cuda_data<T>());
  });
}

void softmax_backward(Cuda device, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  dispatch_float(y.dtype(), "softmax", [&]<class T>() {
    launch(device, "softmax", softmax_backward_kernel<T>, y.dim(0), row_threads(y.dim(1)), y.dim(1), y.cuda_data<T>(),
           dy.cuda_data<T>(), dx.cuda_data<T>());
  });
}

}  // namespace godwit
