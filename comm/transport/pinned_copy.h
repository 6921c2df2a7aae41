// Tensors where MPI reads and writes them: those of the CPU as they are, those of a GPU by way of page-locked memory.
#pragma once
#include "engine/tensor.h"

namespace godwit {

inline Tensor host_memory(Cpu, const Tensor& x) { return x; }
Tensor host_memory(Cuda device, const Tensor& x);  // like x, its values not set

inline Tensor host_like(const Tensor& x) {
  return on_device(x, [&](auto device) { return host_memory(device, x); });
}

inline Tensor on_host(const Tensor& x) {
  const Tensor host = host_like(x);
  host.copy_from(x);
  return host;
}

}  // namespace godwit
