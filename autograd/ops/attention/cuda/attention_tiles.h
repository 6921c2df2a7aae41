// Tiles for tensor cores. Each warp keeps the rows that it owns in registers; the tiles of the other operand are in
// shared memory.
#pragma once
#include "autograd/ops/attention/cuda/attention_call.h"
#include "engine/cuda/elementwise.h"
#include "engine/cuda/tensor_cores.h"

namespace godwit::detail {

constexpr int kWarps = 4, kThreads = 32 * kWarps;

// Eight elements of a row. The chunks of a tile are permuted so that the chunks of one column in eight consecutive rows
// are in different banks.
struct alignas(16) Chunk {
  uint32_t words[4];
};

// Tile sizes for rows padded to `width` elements: 32, 64 or 128. Each warp owns 16 · m rows. A tile in shared memory
// has `rows` rows. A larger m reuses loads from shared memory more often and needs more registers.
template <int width, int m, int rows>
struct Sizes {
  static constexpr int kWidth = width, kM = m;
  static constexpr int kSteps = kWidth / 16, kColumns = kWidth / 8;  // steps of 16 columns; groups of 8 columns
  static constexpr int kWarpRows = 16 * kM, kOwnRows = kWarpRows * kWarps;
  static constexpr int kRows = rows;
  static constexpr int kChunks = kRows * kColumns;
  using Sums = float[kM][kColumns][4];  // accumulators for the rows of a warp
  static int64_t tiles(int64_t length) { return (length + kOwnRows - 1) / kOwnRows; }

  static __device__ int place(int row, int column) {
    return row * kColumns + (kWidth == 32 ? column ^ (row >> 1 & 3) : column ^ (row & 7));
  }
};

__device__ inline int lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int warp() { return static_cast<int>(threadIdx.x / 32); }

__device__ inline uint64_t lowest(int64_t n) { return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

// Copies tiles of a head's rows to shared memory with all threads of the block. Each thread copies the chunks of one
// column.
template <class Of>
class TileRows {
  static constexpr int kStride = kThreads / Of::kColumns;  // row stride of one thread

 public:
  __device__ TileRows(const AttentionView& call, const AttentionRows& rows)
      : first_(rows.first + int64_t{row()} * rows.step + (8 * column() < call.width ? 8 * column() : 0)),
        step_(rows.step),
        counts_(8 * column() < call.width) {}

  // Starts copying rows [first, first + kRows) of x to `to`. Writes zeros for rows without a bit in `there` and for
  // columns beyond the width.
  __device__ void load(const bf16* x, int first, uint64_t there, Chunk* to) const {
    there = counts_ ? there >> row() : 0;
    to += Of::place(row(), column());
    const bf16* from = x + (first_ + int64_t{first} * step_);
#pragma unroll
    for (int i = 0; i < Of::kRows; i += kStride) {  // rows kStride apart have the same permutation
      const bool copies = (there >> i & 1) != 0;
      copy_async(to + i * Of::kColumns, from + i * step_, copies);
    }
  }

  // Starts copying rows [first, first + kRows) of x, shifted by `shift` elements, to `to`. Writes zeros for rows from
  // `first` + `count` and for columns beyond the width.
  __device__ void load_rows(const bf16* x, int first, int count, Chunk* to, int shift) const {
    count = counts_ ? count - row() : 0;
    to += Of::place(row(), column());
    const bf16* from = x + (first_ + shift + int64_t{first} * step_);
#pragma unroll
    for (int i = 0; i < Of::kRows; i += kStride) copy_async(to + i * Of::kColumns, from + i * step_, i < count);
  }

 private:
  static __device__ int row() { return static_cast<int>(threadIdx.x) / Of::kColumns; }
  static __device__ int column() { return static_cast<int>(threadIdx.x) % Of::kColumns; }

  int64_t first_;  // first element that the thread copies
  int32_t step_;
  bool counts_;
};

// s[m][n] = the warp's rows (attention_own.h) · the transpose of rows [row + 8n, row + 8n + 8) of the tile. kN is even.
template <class Of, int kN, class Own>
__device__ void multiply_rows(const Own& own, const Chunk* tile, int row, float (&s)[Of::kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < Of::kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = 0;
  tile += row * Of::kColumns;
  // Two words of a load form a right operand. They are in adjacent registers, as the instruction requires. The columns
  // of a load are even, so that ^ adds them within place().
  const int start = Of::place(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2);
#pragma unroll
  for (int k = 0; k < Of::kSteps; ++k) {
    uint32_t a[Of::kM][4];
    own.step(k, a);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t b[4];
      load_matrices(b, tile + 8 * n * Of::kColumns + (start ^ 2 * k));
#pragma unroll
      for (int m = 0; m < Of::kM; ++m) mma_bf16(s[m][n], a[m], b[0], b[1]);
#pragma unroll
      for (int m = 0; m < Of::kM; ++m) mma_bf16(s[m][n + 1], a[m], b[2], b[3]);
    }
  }
}

// sums += p · rows [row, row + 16) of the tile.
template <class Of>
__device__ void add_rows(const uint32_t (&p)[Of::kM][4], const Chunk* tile, int row, typename Of::Sums& sums) {
  tile += row * Of::kColumns;
  const int start = Of::place(lane() % 16, lane() / 16);
#pragma unroll
  for (int n = 0; n < Of::kColumns; n += 2) {
    uint32_t b[4];
    load_transposes(b, tile + (start ^ n));
#pragma unroll
    for (int m = 0; m < Of::kM; ++m) mma_bf16(sums[m][n], p[m], b[0], b[1]);
#pragma unroll
    for (int m = 0; m < Of::kM; ++m) mma_bf16(sums[m][n + 1], p[m], b[2], b[3]);
  }
}

}  // namespace godwit::detail
