// Values of the host for a group's calls: on the CPU wherever the rank's kernels run, so that nobody waits for a GPU.
#pragma once
#include <algorithm>
#include <vector>

#include "engine/tensor.h"

namespace godwit {

template <class T>
Tensor on_host(const std::vector<T>& values) {
  const Tensor x({static_cast<int64_t>(values.size())}, dtype_of<T>, kCpu);
  std::copy(values.begin(), values.end(), x.data<T>());
  return x;
}

}  // namespace godwit
