// The right-hand matrix of a product in the blocks that oneDNN's kernels read.
#pragma once
#include "engine/tensor.h"

namespace godwit {

constexpr int64_t kBlockColumns = 64;
constexpr int64_t block_rows(DType type) { return type == DType::bf16 ? 32 : 16; }

// w [rows, columns], which in memory is [columns, rows] when transposed, float32 → to, float32
// [columns / 64][rows / 16][16][64], or bfloat16 [columns / 64][rows / 32][16][64][2], the last extent two rows. Both
// extents must be whole blocks.
void pack_weights(Cpu, const Tensor& w, bool transposed, int64_t rows, int64_t columns, DType type, void* to);

}  // namespace godwit
