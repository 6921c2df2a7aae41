#include "comm/compress/wire/gather_scatter.h"

#include "engine/cuda/update.h"

namespace godwit {
namespace {

__global__ void gather_kernel(const int64_t* indices, int64_t count, float* x, bool clear, float* values) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    values[i] = x[indices[i]];
    if (clear) x[indices[i]] = 0;
  }
}

__global__ void scatter_kernel(const int64_t* indices, int64_t count, const float* values, const float* scales,
                               float* x) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads())
    x[indices[i]] = scales ? values[i] * scales[i] : values[i];
}

struct Add {
  __device__ void operator()(int64_t, float x, float& sum) const { sum = x + sum; }
};

}  // namespace

void add_values(Cuda device, const float* x, float* sum, int64_t n) { update_each(device, "add", 0, n, Add{}, x, sum); }

void gather(Cuda device, const Tensor& indices, const Tensor& x, bool clear, const Tensor& values) {
  launch(device, "gather", gather_kernel, blocks_for(device, indices.numel()), kBlock, indices.cuda_data<int64_t>(),
         indices.numel(), x.cuda_data<float>(), clear, values.cuda_data<float>());
}

void scatter(Cuda device, const Tensor& indices, const Tensor& values, const Tensor& scales, const Tensor& x) {
  launch(device, "scatter", scatter_kernel, blocks_for(device, indices.numel()), kBlock, indices.cuda_data<int64_t>(),
         indices.numel(), values.cuda_data<float>(), scales.defined() ? scales.cuda_data<float>() : nullptr,
         x.cuda_data<float>());
}

}  // namespace godwit
