// The rows that a warp owns: the left operands of its products, and its results.
#pragma once
#include "autograd/ops/attention/cuda/attention_tiles.h"

namespace godwit::detail {

// The sign of the scale is applied to the left matrix, so that the largest product is the largest score.
__device__ inline uint32_t sign_flip(const AttentionView& call) { return call.scale < 0 ? 0x80008000u : 0; }

// The rows that a warp owns: 16 · kM rows of x starting at row `first`, with their bits XORed with `flip`. step(k, a)
// returns columns [16k, 16k + 16) of these rows. The first kKept steps are kept in registers. For the other steps, the
// constructor starts to copy the rows of the block, starting at row `of_block`, to shared memory.
template <class Of, int kKept = Of::kSteps>
class OwnRows {
  static constexpr bool kShared = kKept < Of::kSteps;

 public:
  // Shared memory of a block.
  struct Memory {
    Chunk chunks[kShared ? Of::kOwnRows * Of::kColumns : 1];
  };

  __device__ OwnRows(const AttentionView& call, const AttentionRows& rows, const bf16* x, int64_t first, uint32_t flip)
      : flip_(flip) {
#pragma unroll
    for (int m = 0; m < Of::kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int64_t row = first + 16 * m + lane() / 4 + 8 * r;
        const bf16* from = rows.row(x, row);
#pragma unroll
        for (int k = 0; k < kKept; ++k)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int column = 16 * k + 8 * half + 2 * (lane() % 4);
            const bool there = row < rows.length && column < call.width;
            steps_[k][m][2 * half + r] = there ? std::bit_cast<uint32_t>(load_pack<2>(from + column, 0)) ^ flip : 0;
          }
      }
  }
  __device__ OwnRows(const AttentionView& call, const AttentionRows& rows, const bf16* x, int64_t first, uint32_t flip,
                     int64_t of_block, Memory& memory)
      : OwnRows(call, rows, x, first, flip) {
    if constexpr (kShared) {
      const TileRows<typename Of::Own> of_block_rows(call, rows);
#pragma unroll
      for (int row = 0; row < Of::kOwnRows; row += 64) {
        const int64_t at = of_block + row;
        of_block_rows.load(x, static_cast<int>(at), at < rows.length ? lowest(rows.length - at) : 0,
                           memory.chunks + row * Of::kColumns);
      }
      tile_ = memory.chunks + static_cast<int>(first - of_block) * Of::kColumns;
    }
  }
  // If kKept < Of::kSteps, call step() only after await_copies() and a barrier.
  __device__ void step(int k, uint32_t (&a)[Of::kM][4]) const {
#pragma unroll
    for (int m = 0; m < Of::kM; ++m) {
      if (k >= kKept)
        load_matrices(a[m], tile_ + 16 * m * Of::kColumns + (Of::place(lane() % 16, lane() / 16) ^ 2 * k));
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] = k < kKept ? steps_[k][m][i] : a[m][i] ^ flip_;
    }
  }

 private:
  uint32_t steps_[kKept > 0 ? kKept : 1][Of::kM][4];
  uint32_t flip_;
  const Chunk* tile_ = nullptr;
};

// Writes value(m, r, sum) to the rows of x starting at row `first`. r = 1 for the lower eight of sixteen rows.
template <int kM, int kColumns, class F>
__device__ void write_own(const AttentionView& call, const AttentionRows& rows, bf16* x, int64_t first,
                          const float (&sums)[kM][kColumns][4], const F& value) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t row = first + 16 * m + lane() / 4 + 8 * r;
      if (row >= rows.length) continue;
      bf16* to = rows.row(x, row);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const uint32_t word = pack_bf16(value(m, r, sums[m][n][2 * r]), value(m, r, sums[m][n][2 * r + 1]));
        const int at = 8 * n;
        if (at < call.width)
          *reinterpret_cast<Pack<bf16, 2>*>(to + at + 2 * (lane() % 4)) = std::bit_cast<Pack<bf16, 2>>(word);
      }
    }
}

}  // namespace godwit::detail
