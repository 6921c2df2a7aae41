// Packs float32 filters as bfloat16 in the blocked layouts of AVX512_BF16 convolutions. Only conv2d_*.cpp includes this
// header.
#pragma once
#include <array>
#include <utility>
#include <vector>

#include "engine/tensor.h"

namespace godwit::detail {

// Position of filter value [o, i, kh, kw]. The inner blocks (dimension, size) are dense, fastest last. The outer
// indices have strides. Values beyond the extents are zeros.
struct FilterBlocks {
  std::array<int64_t, 4> padded, strides;
  std::vector<std::pair<int, int64_t>> inner;
};

// Writes w [o, kh, kw, i] float32 in the layout `blocks`. Returns false if no kernel in this file supports the layout.
bool arrange_filters(const Tensor& w, const FilterBlocks& blocks, const Tensor& to);
// Like arrange_filters(), for filters [i, kh, kw, o] rotated by 180°. A forward convolution of dy with the rotated
// filters computes dx.
bool arrange_turned_filters(const Tensor& w, const FilterBlocks& blocks, const Tensor& to);

}  // namespace godwit::detail
