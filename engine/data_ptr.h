// Typed data pointer of a tensor for a kernel on the given device. Throws if the tensor is on another device.
#pragma once
#include "engine/tensor.h"

namespace godwit {

template <class T>
T* data_ptr(Cpu, const Tensor& x) {  // for a tensor on the CPU
  return x.data<T>();
}
template <class T>
T* data_ptr(Cuda, const Tensor& x) {  // for a tensor on a GPU
  return x.cuda_data<T>();
}

}  // namespace godwit
