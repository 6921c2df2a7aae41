// Inside conv2d_*.cpp: float32 filters rounded to bfloat16 in the blocked layouts that AVX512_BF16 convolutions read.
#pragma once
#include <array>
#include <utility>
#include <vector>

#include "engine/tensor.h"

namespace godwit::detail {

// Where a filter's value [o, i, kh, kw] lies: the inner blocks (dimension, size) are dense and the last moves fastest;
// what they leave of each index counts strides. Values beyond the extents are zeros.
struct FilterBlocks {
  std::array<int64_t, 4> padded, strides;
  std::vector<std::pair<int, int64_t>> inner;
};

// Writes w [o, kh, kw, i] float32 as `blocks` say; false where no kernel here knows them.
bool arrange_filters(const Tensor& w, const FilterBlocks& blocks, const Tensor& to);
// The same of the filters [i, kh, kw, o], turned by half a circle, that take dy to dx as a forward convolution does.
bool arrange_turned_filters(const Tensor& w, const FilterBlocks& blocks, const Tensor& to);

}  // namespace godwit::detail
