// The rows that a warp owns: left operands of its products, and its results.
#pragma once
#include <cfloat>

#include "autograd/ops/attention/cuda/attention_tiles.h"

namespace godwit::detail {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

// Factor from raw products to exponents of 2. The sign of the scale is applied to the left matrix, so that the largest
// product is the largest score. The factor is not 0, because -infinity marks masked scores.
__device__ inline float exponent_scale(const AttentionView& call) {
  return fmaxf(fabsf(static_cast<float>(call.scale)) * kLog2E, FLT_MIN);
}
__device__ inline uint32_t sign_flip(const AttentionView& call) { return call.scale < 0 ? 0x80008000u : 0; }

// The own rows of the warps of a block, from row `of_block` of x on, with their bits XORed with `flip`. step(k, a)
// returns columns [16k, 16k + 16) of the warp's rows. The rows are in registers. If `shared`, they are in shared memory
// because registers do not suffice, and the constructor starts the copy.
template <class Of, bool shared>
class OwnRows {
 public:
  // Shared memory of a block.
  struct Memory {};

  __device__ OwnRows(const AttentionView& call, const AttentionRows& rows, const bf16* x, int64_t of_block, uint32_t flip,
                     Memory&) {
    const int64_t first = of_block + warp() * Of::kWarpRows;
#pragma unroll
    for (int m = 0; m < Of::kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int64_t row = first + 16 * m + lane() / 4 + 8 * r;
        const bf16* from = rows.row(x, row);
#pragma unroll
        for (int k = 0; k < Of::kSteps; ++k)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int column = 16 * k + 8 * half + 2 * (lane() % 4);
            const bool there = row < rows.length && column < call.width;
            steps_[k][m][2 * half + r] = there ? std::bit_cast<uint32_t>(load_pack<2>(from + column, 0)) ^ flip : 0;
          }
      }
  }
  __device__ void step(int k, typename Of::Left& a) const {
#pragma unroll
    for (int m = 0; m < Of::kM; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] = steps_[k][m][i];
  }

 private:
  typename Of::Left steps_[Of::kSteps];
};

template <class Of>
class OwnRows<Of, true> {
  using All = Sizes<Of::kWidth, Of::kM, Of::kOwnRows>;  // a tile of all own rows

 public:
  struct Memory {
    Chunk chunks[All::kChunks];
  };

  __device__ OwnRows(const AttentionView& call, const AttentionRows& rows, const bf16* x, int64_t of_block, uint32_t flip,
                     Memory& memory)
      : tile_(memory.chunks), flip_(flip) {
    TileRows<All>(call, rows, x).load(of_block, lowest(rows.length - of_block), memory.chunks);
  }
  // Call after await_copies() and a barrier.
  __device__ void step(int k, typename Of::Left& a) const {
#pragma unroll
    for (int m = 0; m < Of::kM; ++m) {
      load_matrices(a[m], tile_ + Of::place(warp() * Of::kWarpRows + 16 * m + lane() % 16, 2 * k + lane() / 16));
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] ^= flip_;
    }
  }

 private:
  const Chunk* tile_;
  uint32_t flip_;
};

// Writes value(m, r, sum) to the own rows of x, starting at row `first`; r = 1 for the lower eight of sixteen rows.
template <class Of, class F>
__device__ void write_own(const AttentionView& call, const AttentionRows& rows, bf16* x, int64_t first,
                          const typename Of::Sums& sums, const F& value) {
#pragma unroll
  for (int m = 0; m < Of::kM; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t row = first + 16 * m + lane() / 4 + 8 * r;
      if (row >= rows.length) continue;
      bf16* to = rows.row(x, row);
#pragma unroll
      for (int n = 0; n < Of::kColumns; ++n) {
        const uint32_t word = pack_bf16(value(m, r, sums[m][n][2 * r]), value(m, r, sums[m][n][2 * r + 1]));
        if (8 * n < call.width)
          *reinterpret_cast<Pack<bf16, 2>*>(to + 8 * n + 2 * (lane() % 4)) = std::bit_cast<Pack<bf16, 2>>(word);
      }
    }
}

}  // namespace godwit::detail
