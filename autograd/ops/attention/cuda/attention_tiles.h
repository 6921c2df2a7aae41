// Tiles for tensor cores: each warp keeps its own rows in registers; the other operand's tiles are in shared memory.
#pragma once
#include <bit>

#include "autograd/ops/attention/cuda/attention_call.h"
#include "engine/cuda/elementwise.h"
#include "engine/cuda/tensor_cores.h"

namespace godwit::detail {

constexpr int kWarps = 4, kThreads = 32 * kWarps;

// Eight elements of a row. Chunks of a tile are permuted so that the chunks of one column in eight consecutive rows are
// in different banks.
struct alignas(16) Chunk {
  uint32_t words[4];
};

// Tile sizes for rows padded to `width` elements: 32, 64 or 128. Each warp has 16 · m own rows; a tile in shared memory
// has `rows` rows. A larger m reuses loads from shared memory more often and needs more registers.
template <int width, int m, int rows>
struct Sizes {
  static constexpr int kWidth = width, kM = m, kThreads = detail::kThreads;
  static constexpr int kSteps = kWidth / 16, kColumns = kWidth / 8;  // steps of 16; groups of 8 columns
  static constexpr int kWarpRows = 16 * kM, kOwnRows = kWarpRows * kWarps;
  static constexpr int kRows = rows;
  static constexpr int kChunks = kRows * kColumns;
  using Left = uint32_t[kM][4];         // sixteen columns of the warp's own rows
  using Sums = float[kM][kColumns][4];  // accumulators for the own rows
  static int64_t tiles(int64_t length) { return (length + kOwnRows - 1) / kOwnRows; }

  static __device__ int place(int row, int column) {
    return row * kColumns + (kWidth == 32 ? column ^ (row >> 1 & 3) : column ^ (row & 7));
  }
};

__device__ inline int lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int warp() { return static_cast<int>(threadIdx.x / 32); }

__device__ inline uint64_t lowest(int64_t n) { return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

// A difference of indices as an int. The limit exceeds every offset within a tile, so comparisons with offsets are
// right.
__device__ inline int within_tiles(int64_t difference) {
  constexpr int kMost = 1024;
  return difference > kMost ? kMost : difference < -kMost ? -kMost : static_cast<int>(difference);
}

// Copies tiles of a head's rows to shared memory with all threads of the block. Each thread copies chunks of one
// column.
template <class Of>
class TileRows {
  static constexpr int kStride = Of::kThreads / Of::kColumns;  // row stride of one thread

 public:
  __device__ TileRows(const AttentionView& call, const AttentionRows& rows, const bf16* x)
      : from_(rows.row(x, row()) + (8 * column() < call.width ? 8 * column() : 0)),
        step_(rows.step),
        counts_(8 * column() < call.width) {}

  // Starts copying rows [first, first + kRows), `shift` elements further, to `to`. Writes zeros for rows without a bit
  // in `there` and for columns beyond the width.
  __device__ void load(int64_t first, uint64_t there, Chunk* to, int64_t shift = 0) const {
    there = counts_ ? there >> row() : 0;
    to += Of::place(row(), column());
    const bf16* from = from_ + shift + first * step_;
#pragma unroll
    for (int i = 0; i < Of::kRows; i += kStride) {  // rows kStride apart have the same permutation
      const bool copies = (there >> i & 1) != 0;
      copy_async(to + i * Of::kColumns, from + i * step_, copies);
    }
  }

  // As above, for `count` rows from row `first`.
  __device__ void load_rows(int first, int count, Chunk* to, int shift = 0) const {
    count = counts_ ? count - row() : 0;
    to += Of::place(row(), column());
    const bf16* from = from_ + shift + int64_t{first} * step_;
#pragma unroll
    for (int i = 0; i < Of::kRows; i += kStride) copy_async(to + i * Of::kColumns, from + i * step_, i < count);
  }

 private:
  static __device__ int row() { return static_cast<int>(threadIdx.x) / Of::kColumns; }
  static __device__ int column() { return static_cast<int>(threadIdx.x) % Of::kColumns; }

  const bf16* from_;
  int32_t step_;
  bool counts_;
};

// s[m][n] = own rows (attention_own.h) · rows [row + 8n, row + 8n + 8) of the tile, transposed; kN is 1 or even.
template <class Of, int kN, class Own>
__device__ void multiply_rows(const Own& own, const Chunk* tile, int row, float (&s)[Of::kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < Of::kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = 0;
  // The columns of a load are an even number plus lane_column, or with kN = 1 a multiple of 4 plus lane_column, so
  // that ^ adds them within place(). The two words of a right operand are adjacent, as the instruction requires.
  const int lane_row = kN == 1 ? lane() % 8 : lane() % 8 + lane() / 16 * 8;
  const int lane_column = kN == 1 ? lane() / 8 : lane() / 8 % 2;
  tile += row * Of::kColumns;
  const int start = Of::place(lane_row, lane_column);
  uint32_t b[4];
#pragma unroll
  for (int k = 0; k < Of::kSteps; ++k) {
    uint32_t a[Of::kM][4];
    own.step(k, a);
    if constexpr (kN == 1) {
      if (k % 2 == 0) load_matrices(b, tile + (start ^ 2 * k));
#pragma unroll
      for (int m = 0; m < Of::kM; ++m) mma_bf16(s[m][0], a[m], b[k % 2 * 2], b[k % 2 * 2 + 1]);
    } else {
#pragma unroll
      for (int n = 0; n < kN; n += 2) {
        load_matrices(b, tile + 8 * n * Of::kColumns + (start ^ 2 * k));
#pragma unroll
        for (int m = 0; m < Of::kM; ++m) mma_bf16(s[m][n], a[m], b[0], b[1]);
#pragma unroll
        for (int m = 0; m < Of::kM; ++m) mma_bf16(s[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// sums += p · rows [row, row + 16) of the tile, from group `column` of eight columns; a multiple of kColumns.
template <class Of, int kM, int kColumns>
__device__ void add_rows(const uint32_t (&p)[kM][4], const Chunk* tile, int row, float (&sums)[kM][kColumns][4],
                         int column = 0) {
  tile += row * Of::kColumns;
  const int start = Of::place(lane() % 16, lane() / 16) ^ column;
#pragma unroll
  for (int n = 0; n < kColumns; n += 2) {
    uint32_t b[4];
    load_transposes(b, tile + (start ^ n));
#pragma unroll
    for (int m = 0; m < kM; ++m) mma_bf16(sums[m][n], p[m], b[0], b[1]);
#pragma unroll
    for (int m = 0; m < kM; ++m) mma_bf16(sums[m][n + 1], p[m], b[2], b[3]);
  }
}

// A tile of keys with one bit per key: 1 if the key is attended. After the last tile, `attended` is 0.
struct KeyTile {
  int64_t first;
  uint64_t attended;
};

// The first tile at or after `first`, and before `end`, with an attended key. All warps get the same result.
template <int kRows>
__device__ KeyTile next_keys(const AttentionView& call, const AttentionHeadView& head, int64_t first, int64_t end) {
  for (; first < end; first += kRows) {
    if (call.mask == nullptr) return {first, lowest(call.keys - first) & lowest(kRows)};
    uint64_t attended = 0;
    for (int part = 0; part < kRows; part += 32)
      attended |= uint64_t{__ballot_sync(~0u, head.attended(call, first + part + lane()))} << part & lowest(kRows);
    if (attended != 0) return {first, attended};
  }
  return {first, 0};
}

}  // namespace godwit::detail
