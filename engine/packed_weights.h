// Packs the right-hand matrix of a product into the blocked layout of oneDNN's kernels.
#pragma once
#include <vector>

#include "engine/tensor.h"

namespace godwit {

constexpr int64_t kBlockColumns = 64;                                               // columns of a block
constexpr int64_t block_rows(DType type) { return type == DType::bf16 ? 32 : 16; }  // rows of a block

// Packs w [rows, columns] float32, which is stored as [columns, rows] if `transposed`. `to` is float32 [columns /
// 64][rows / 16][16][64], or bfloat16 [columns / 64][rows / 32][16][64][2], where the last extent is a pair of rows.
// Incomplete blocks are padded with 0. w may have several parts, each with consecutive rows of the stored matrix. Every
// part except the last has a multiple of 64 rows.
void pack_weights(Cpu, const std::vector<Tensor>& w, bool transposed, int64_t rows, int64_t columns, DType type,
                  void* to);

}  // namespace godwit
