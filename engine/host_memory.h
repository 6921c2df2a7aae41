// Host memory for values of a tensor: the CPU tensor itself, or page-locked memory for a GPU tensor.
#pragma once
#include "engine/tensor.h"

namespace godwit {

inline Tensor host_memory(Cpu, const Tensor& x) { return x; }  // for a CPU tensor: x itself
Tensor host_memory(Cuda device, const Tensor& x);  // page-locked CPU tensor of x's shape and type; values unspecified

// host_memory() for the device of x.
inline Tensor host_like(const Tensor& x) {
  return on_device(x, [&](auto device) { return host_memory(device, x); });
}

// A CPU tensor with x's values (x itself if x is on the CPU). A copy from a GPU has finished when the function returns.
inline Tensor pinned_copy(const Tensor& x) {
  const Tensor host = host_like(x);
  host.copy_from(x);
  return host;
}

inline Tensor copy_in_stream_order(Cpu, const Tensor& x) { return x.clone(); }  // on the CPU: an immediate copy
// Page-locked CPU tensor that receives x's values when the stream reaches this point. Synchronize with the stream
// before reading or releasing the tensor.
Tensor copy_in_stream_order(Cuda device, const Tensor& x);

}  // namespace godwit
