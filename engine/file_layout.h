// FileLayout: the order of a tensor's dimensions in weight files, if it differs from the order in memory.
#pragma once
#include "engine/tensor.h"

namespace godwit {

// Order of dimensions in weight files.
enum class FileLayout {
  as_in_memory,
  channels_first,  // filters: [out, kh, kw, in] in memory, [out, in, kh, kw] in files, as in PyTorch
  transposed,      // matrices: [out, in] in memory, [in, out] in files, as in HuggingFace's GPT-2
};

// The shape in files of a tensor with shape `shape` in memory. Throws if the rank does not fit the layout.
Shape file_shape(const Shape& shape, FileLayout layout);

// Returns the values in file order, in CPU memory. The result may share memory with `values`.
Tensor to_file_layout(const Tensor& values, FileLayout layout);
// Returns the values in memory order. `values` is in CPU memory and in file order. The result may share memory with
// `values`.
Tensor from_file_layout(const Tensor& values, FileLayout layout);

}  // namespace godwit
