// FileLayout: the order of a tensor's dimensions in weight files, where it differs from the order in memory.
#pragma once
#include "engine/tensor.h"

namespace godwit {

// Order of dimensions in weight files.
enum class FileLayout {
  as_in_memory,
  channels_first,  // filters: [out, kh, kw, in] in memory, [out, in, kh, kw] in files, as in PyTorch
  transposed,      // matrices: [out, in] in memory, [in, out] in files, as in HuggingFace's GPT-2
};

// The shape in files of a tensor with this shape in memory. Throws unless the rank fits the layout.
Shape file_shape(const Shape& shape, FileLayout layout);

// The values in the order of files, in CPU memory. May share memory with `values`.
Tensor to_file_layout(const Tensor& values, FileLayout layout);
// The values in the order of memory, from CPU memory in the order of files. May share memory with `values`.
Tensor from_file_layout(const Tensor& values, FileLayout layout);

}  // namespace godwit
