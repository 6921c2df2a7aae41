#include "engine/gpu.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "engine/context.h"
#include "engine/cuda/rank_pools.h"

namespace godwit {

std::string gpu_name() {
  const auto& cuda = context().cuda;
  if (!cuda) return "";
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, cuda->index), "cudaGetDeviceProperties");
  return detail::concat(cuda_device(cuda->index), ", ", properties.name);
}

int stream_priority() {
  const auto& cuda = context().cuda;
  int priority = 0;
  if (cuda) cuda_check(cudaStreamGetPriority(cuda->stream.get(), &priority), "cudaStreamGetPriority");
  return priority;
}

const ConvolutionPaths& convolution_paths() {
  static const ConvolutionPaths none;
  return context().cuda ? context().cuda->convolutions : none;
}

int64_t library_choices() { return context().cuda ? context().cuda->choices : 0; }

void before_loading(std::function<void()> f, const void* owner) {
  const auto& cuda = context().cuda;
  if (!cuda || (!f && cuda->loading_owner != owner)) return;
  cuda->before_loading = std::move(f);
  cuda->loading_owner = owner;
}

int64_t peak_gpu_bytes() { return context().cuda ? rank_pools(*context().cuda)->peak_bytes() : 0; }

}  // namespace godwit
