#include "comm/reduce.h"
#include "engine/cuda/rows.h"

namespace godwit {
namespace {

constexpr int kAtOnce = 8;  // inputs whose loads are in flight

// The sums of elements [i, i + n). `in` and `out` are arrays of pointers. Each thread reads all its inputs before it
// writes, so an `out` may be one of `in`.
template <int n, class T>
__device__ void reduce_at(const T* const* in, int64_t ranks, T* const* out, int64_t outs, int64_t i, bool mean) {
  auto sum = detail::load_pack<n>(in[0] + i, 0);
#pragma unroll kAtOnce
  for (int64_t rank = 1; rank < ranks; ++rank) {
    const auto values = detail::load_pack<n>(in[rank] + i, 0);
    for (int k = 0; k < n; ++k) sum.values[k] += values.values[k];
  }
  if (mean)
    for (int k = 0; k < n; ++k) sum.values[k] /= static_cast<T>(ranks);
  for (int64_t to = 0; to < outs; ++to) detail::store_pack(out[to] + i, sum);
}

// Processes `packs` packs of 16 bytes, then the remaining elements.
template <class T>
__global__ void reduce_kernel(const T* const* __restrict__ in, int64_t ranks, T* const* __restrict__ out, int64_t outs,
                              int64_t packs, int64_t n, bool mean) {
  constexpr int kWidth = kPack<T>;
  for (int64_t pack = grid_thread(); pack < packs; pack += grid_threads())
    reduce_at<kWidth>(in, ranks, out, outs, pack * kWidth, mean);
  for (int64_t i = packs * kWidth + grid_thread(); i < n; i += grid_threads())
    reduce_at<1>(in, ranks, out, outs, i, mean);
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
  const auto aligned = [](const T* x) { return aligned_to<16>(x); };
  const bool packed = std::all_of(in.begin(), in.end(), aligned) && std::all_of(out.begin(), out.end(), aligned);
  const int64_t packs = packed ? n / kPack<T> : 0;
  launch(device, "reduce", reduce_kernel<T>, blocks_for(device, packs > 0 ? packs : n), kBlock,
         static_cast<const T* const*>(from.address()), static_cast<int64_t>(in.size()),
         static_cast<T* const*>(to.address()), static_cast<int64_t>(out.size()), packs, n, op == Reduce::mean);
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
