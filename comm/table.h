// Tables of plain structs that kernels read where they run.
#pragma once
#include <vector>

#include "engine/tensor.h"

namespace godwit {

template <class T>
struct Table {
  std::vector<T> all;
  mutable Tensor copy = {};  // of `all`, as bytes on a GPU, once it was needed there
};

}  // namespace godwit
