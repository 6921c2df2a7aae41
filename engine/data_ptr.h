// A tensor's elements for a kernel, by the tag of where it runs; memory elsewhere is refused.
#pragma once
#include "engine/tensor.h"

namespace godwit {

template <class T>
T* data_ptr(Cpu, const Tensor& x) {
  return x.data<T>();
}
template <class T>
T* data_ptr(Cuda, const Tensor& x) {
  return x.cuda_data<T>();
}

}  // namespace godwit
