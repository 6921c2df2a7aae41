#include "comm/reduce.h"
#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

// `in` and `out` are arrays of pointers. Each thread reads all its inputs before it writes, so an `out` may be one of
// `in`.
template <class T>
__global__ void reduce_kernel(const T* const* in, int64_t ranks, T* const* out, int64_t outs, int64_t n, bool mean) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    T sum = in[0][i];
    for (int64_t rank = 1; rank < ranks; ++rank) sum += in[rank][i];
    if (mean) sum /= static_cast<T>(ranks);
    for (int64_t to = 0; to < outs; ++to) out[to][i] = sum;
  }
}

template <class T>
struct DividedBy {
  T divisor;
  __device__ T operator()(T value) const { return value / divisor; }
};

// Copies the pointers to an array on the GPU.
template <class P>
Tensor table(Cuda device, const std::vector<P>& pointers) {
  const auto count = static_cast<int64_t>(pointers.size());
  static_assert(sizeof(P) == sizeof(int64_t));
  const Tensor on_gpu({count}, DType::i64, cuda_device(device.context->index));
  device.context->staging.copy(pointers.data(), on_gpu.address(), on_gpu.bytes(), device.stream);
  return on_gpu;
}

}  // namespace

template <class T>
void reduce_in_order(Cuda device, const std::vector<const T*>& in, const std::vector<T*>& out, int64_t n, Reduce op) {
  const Tensor from = table(device, in), to = table(device, out);
  launch(device, "reduce", reduce_kernel<T>, blocks_for(device, n), kBlock,
         static_cast<const T* const*>(from.address()), static_cast<int64_t>(in.size()),
         static_cast<T* const*>(to.address()), static_cast<int64_t>(out.size()), n, op == Reduce::mean);
}

template void reduce_in_order(Cuda, const std::vector<const float*>&, const std::vector<float*>&, int64_t, Reduce);
template void reduce_in_order(Cuda, const std::vector<const double*>&, const std::vector<double*>&, int64_t, Reduce);

void divide(Cuda device, const Tensor& sum, int ranks) {
  dispatch_real(sum.dtype(), "divide", [&]<class T>() {
    T* values = sum.cuda_data<T>();
    elementwise(device, "divide", sum.numel(), DividedBy<T>{static_cast<T>(ranks)}, values, values);
  });
}

}  // namespace godwit
