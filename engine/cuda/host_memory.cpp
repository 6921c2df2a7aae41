#include "engine/host_memory.h"

#include <cuda_runtime_api.h>

#include "engine/cuda/cuda_context.h"

namespace godwit {

Tensor host_memory(Cuda device, const Tensor& x) {
  const auto& pool = device.context->cached<std::shared_ptr<Pool>>({31}, make_pinned_pool);
  return Tensor::over(Buffer(pool, x.bytes()), 0, x.shape(), x.dtype());
}

Tensor copy_in_stream_order(Cuda device, const Tensor& x) {
  check(!device.context->graph_capture, "a copy to the host cannot be part of a CUDA graph; make it after the step");
  const Tensor host = host_memory(device, x);
  if (x.numel() == 0) return host;
  cuda_check(cudaMemcpyAsync(host.address(), x.address(), static_cast<size_t>(x.bytes()), cudaMemcpyDeviceToHost,
                             device.stream),
             "cudaMemcpyAsync");
  return host;
}

}  // namespace godwit
