// CPU tensors for control-plane collectives. These collectives then never synchronize with a GPU.
#pragma once
#include <algorithm>
#include <vector>

#include "engine/tensor.h"

namespace godwit {

// A new CPU tensor [values.size()] with a copy of the values.
template <class T>
Tensor cpu_tensor(const std::vector<T>& values) {
  const Tensor x({static_cast<int64_t>(values.size())}, dtype_of<T>, kCpu);
  std::copy(values.begin(), values.end(), x.data<T>());
  return x;
}

}  // namespace godwit
