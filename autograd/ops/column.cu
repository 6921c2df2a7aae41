#include "autograd/ops/column.h"
#include "engine/cuda/launch.h"

namespace godwit {
namespace {

template <class T>
__global__ void column_kernel(int64_t n, int64_t columns, const T* from, T* to) {
  for (int64_t row = grid_thread(); row < n; row += grid_threads()) to[row] = from[row * columns];
}

template <class T>
__global__ void add_to_column_kernel(int64_t n, int64_t columns, const T* from, T* to) {
  using C = compute_t<T>;
  for (int64_t row = grid_thread(); row < n; row += grid_threads())
    to[row * columns] = static_cast<T>(C(to[row * columns]) + C(from[row]));
}

}  // namespace

void column_forward(Cuda device, const Tensor& x, int64_t i, const Tensor& y) {
  dispatch_float(x.dtype(), "column", [&]<class T>() {
    launch(device, "column", column_kernel<T>, blocks_for(device, y.numel()), kBlock, y.numel(), x.dim(1),
           x.cuda_data<T>() + i, y.cuda_data<T>());
  });
}

void column_backward(Cuda device, const Tensor& dy, int64_t i, const Tensor& dx) {
  dispatch_float(dx.dtype(), "column", [&]<class T>() {
    launch(device, "column", add_to_column_kernel<T>, blocks_for(device, dy.numel()), kBlock, dy.numel(), dx.dim(1),
           dy.cuda_data<T>(), dx.cuda_data<T>() + i);
  });
}

}  // namespace godwit
