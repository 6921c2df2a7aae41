// A warp keeps the rows that it owns, and what it sums for them, in registers; the others come tile by tile through
// shared memory, the next tile while one is multiplied (Dao 2023, "FlashAttention-2"). What one product leaves in a
// lane's registers is what the next takes as its left matrix, so that neither scores nor probabilities are ever
// written.
#include <bit>
#include <cfloat>
#include <cmath>

#include "autograd/ops/cuda/attention_mma.h"
#include "engine/cuda/elementwise.h"
#include "engine/cuda/tensor_cores.h"

namespace godwit::detail {
namespace {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
constexpr int kWarps = 4, kThreads = 32 * kWarps;

// Eight elements of a row. A tile of rows of kWidth keeps them in an order in which eight rows' chunks of one column
// lie in eight different sixteenths of the banks.
struct alignas(16) Chunk {
  uint32_t words[4];
};

// Sizes for rows padded to kWidth elements: 32, 64 or 128.
template <int kWidth>
struct Sizes {
  static constexpr int kSteps = kWidth / 16, kColumns = kWidth / 8;  // of 16 to multiply; of 8 columns to sum
  static constexpr int kM = kWidth <= 64 ? 2 : 1;                    // times 16 rows are a warp's own
  static constexpr int kWarpRows = 16 * kM, kOwnRows = kWarpRows * kWarps;
  static constexpr int kRows = kWidth <= 64 ? 64 : 32;  // of a tile in shared memory
  static constexpr int kChunks = kRows * kColumns;
  using Left = uint32_t[kM][kSteps][4];  // the warp's rows
  using Sums = float[kM][kColumns][4];   // of products, for them
  static int64_t tiles(int64_t length) { return (length + kOwnRows - 1) / kOwnRows; }

  static __device__ int place(int row, int column) {
    return row * kColumns + (kWidth == 32 ? column ^ (row >> 1 & 3) : column ^ (row & 7));
  }
};

__device__ inline int lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int warp() { return static_cast<int>(threadIdx.x / 32); }

__device__ inline uint64_t lowest(int64_t n) { return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

// Rows [first, first + kRows) of a head on their way to `to`; zeros where `there` has no bit, and beyond the width.
template <int kWidth>
__device__ void load_tile(const AttentionView& call, const AttentionHeadView& head, const bf16* x, int64_t length,
                          int64_t first, uint64_t there, Chunk* to) {
  using Of = Sizes<kWidth>;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < Of::kChunks; i += kThreads) {
    const int row = i / Of::kColumns, column = i % Of::kColumns;
    const bool copies = (there >> row & 1) != 0 && column * 8 < call.width;
    copy_async(to + Of::place(row, column), copies ? head.row(call, x, length, first + row) + column * 8 : x, copies);
  }
}

// Rows from `first` on as left matrices; `flip` is added to their bits.
template <int kWidth>
__device__ void load_own(const AttentionView& call, const AttentionHeadView& head, const bf16* x, int64_t length,
                         int64_t first, uint32_t flip, typename Sizes<kWidth>::Left& to) {
  using Of = Sizes<kWidth>;
#pragma unroll
  for (int m = 0; m < Of::kM; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t row = first + 16 * m + lane() / 4 + 8 * r;
      const bf16* from = head.row(call, x, length, row);
#pragma unroll
      for (int k = 0; k < Of::kSteps; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int column = 16 * k + 8 * half + 2 * (lane() % 4);
          const bool there = row < length && column < call.width;
          to[m][k][2 * half + r] = there ? std::bit_cast<uint32_t>(load_pack<2>(from + column, 0)) ^ flip : 0;
        }
    }
}

// s[m][n] = the own rows · rows [row + 8n, row + 8n + 8) of the tile.
template <int kWidth, int kN>
__device__ void multiply_rows(const typename Sizes<kWidth>::Left& own, const Chunk* tile, int row,
                              float (&s)[Sizes<kWidth>::kM][kN][4]) {
  using Of = Sizes<kWidth>;
#pragma unroll
  for (int m = 0; m < Of::kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = 0;
  const int lane_row = row + lane() / 16 * 8 + lane() % 8, lane_column = lane() / 8 % 2;
#pragma unroll
  for (int k = 0; k < Of::kSteps; ++k)
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t b[4];
      load_matrices(b, tile + Of::place(lane_row + 8 * n, 2 * k + lane_column));
#pragma unroll
      for (int m = 0; m < Of::kM; ++m) mma_bf16(s[m][n], own[m][k], b[0], b[1]);
#pragma unroll
      for (int m = 0; m < Of::kM; ++m) mma_bf16(s[m][n + 1], own[m][k], b[2], b[3]);
    }
}

// sums += p · rows [row, row + 16) of the tile.
template <int kWidth>
__device__ void add_rows(const uint32_t (&p)[Sizes<kWidth>::kM][4], const Chunk* tile, int row,
                         typename Sizes<kWidth>::Sums& sums) {
  using Of = Sizes<kWidth>;
  const int lane_row = row + lane() / 8 % 2 * 8 + lane() % 8, lane_column = lane() / 16;
#pragma unroll
  for (int n = 0; n < Of::kColumns; n += 2) {
    uint32_t b[4];
    load_transposes(b, tile + Of::place(lane_row, n + lane_column));
#pragma unroll
    for (int m = 0; m < Of::kM; ++m) mma_bf16(sums[m][n], p[m], b[0], b[1]);
#pragma unroll
    for (int m = 0; m < Of::kM; ++m) mma_bf16(sums[m][n + 1], p[m], b[2], b[3]);
  }
}

// The own rows of x from `first` on become value(m, r, sum), r = 1 for the lower eight of sixteen.
template <int kWidth, class F>
__device__ void write_own(const AttentionView& call, const AttentionHeadView& head, bf16* x, int64_t length,
                          int64_t first, const typename Sizes<kWidth>::Sums& sums, const F& value) {
  using Of = Sizes<kWidth>;
#pragma unroll
  for (int m = 0; m < Of::kM; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t row = first + 16 * m + lane() / 4 + 8 * r;
      if (row >= length) continue;
      bf16* to = head.row(call, x, length, row);
#pragma unroll
      for (int n = 0; n < Of::kColumns; ++n) {
        const uint32_t word = pack_bf16(value(m, r, sums[m][n][2 * r]), value(m, r, sums[m][n][2 * r + 1]));
        if (8 * n < call.width)
          *reinterpret_cast<Pack<bf16, 2>*>(to + 8 * n + 2 * (lane() % 4)) = std::bit_cast<Pack<bf16, 2>>(word);
      }
    }
}

// A tile of keys, and which of them count, a bit each: none behind the last tile.
struct KeyTile {
  int64_t first;
  uint64_t attended;
};

// The first tile from `first` on in which a key counts. Every warp finds the same.
template <int kRows>
__device__ KeyTile next_keys(const AttentionView& call, const AttentionHeadView& head, int64_t first) {
  for (; first < call.keys; first += kRows) {
    if (call.mask == nullptr) return {first, lowest(call.keys - first) & lowest(kRows)};
    uint64_t attended = 0;
    for (int part = 0; part < kRows; part += 32)
      attended |= uint64_t{__ballot_sync(~0u, head.attended(call, first + part + lane()))} << part;
    if (attended != 0) return {first, attended};
  }
  return {first, 0};
}

// Bit k: whether the probability of element 4 · quad + k is kept.
__device__ inline uint32_t kept_of_quad(const AttentionView& call, uint32_t quad) {
  const auto words = philox4x32({quad, call.draws.step, call.draws.purpose, call.draws.sender},
                                {static_cast<uint32_t>(call.draws.seed), static_cast<uint32_t>(call.draws.seed >> 32)});
  uint32_t kept = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) kept |= (static_cast<int32_t>(words[k] >> 8) < call.dropped ? 0u : 1u) << k;
  return kept;
}

__device__ inline uint32_t kept_of_element(const AttentionView& call, int64_t element) {
  return kept_of_quad(call, static_cast<uint32_t>(element >> 2)) >> (element & 3) & 1;
}

// Where rows are queries: bit 4n + c of kept[r] is for query `query` + lane / 4 + 8r, key `key` + 8n + 2(lane % 4) + c.
// Where four keys in a row share a draw, one of two lanes makes it for both.
template <int kN>
__device__ void kept_by_query(const AttentionView& call, const AttentionHeadView& head, int64_t query, int64_t key,
                              uint32_t (&kept)[2]) {
  const int t = lane() % 4, odd = t % 2;
  const int64_t row = head.number(call) * call.queries + query + lane() / 4;
  if (call.keys % 4 == 0) {
    const auto quad = static_cast<uint32_t>(((row + 8 * odd) * call.keys + key) >> 2) + t / 2;
    uint32_t mine = 0;
#pragma unroll
    for (int n = 0; n < kN; ++n) mine |= kept_of_quad(call, quad + 2 * n) << 4 * n;
    const uint32_t others = __shfl_xor_sync(~0u, mine, 1);
    kept[0] = (odd ? others : mine) >> 2 * odd;
    kept[1] = (odd ? mine : others) >> 2 * odd;
    return;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    kept[r] = 0;
    for (int i = 0; i < 2 * kN; ++i)
      kept[r] |= kept_of_element(call, (row + 8 * r) * call.keys + key + i / 2 * 8 + 2 * t + i % 2)
                 << (i / 2 * 4 + i % 2);
  }
}

// Where rows are keys: bit 4n + 2r + c is for key `key` + lane / 4 + 8r, query `query` + 8n + 2(lane % 4) + c. Where
// four keys in a row share a draw, a lane makes it for the four of other lanes that have these.
template <int kN>
__device__ uint32_t kept_by_key(const AttentionView& call, const AttentionHeadView& head, int64_t query, int64_t key) {
  const int g = lane() / 4, t = lane() % 4;
  const int64_t row = head.number(call) * call.queries + query + 2 * t;
  uint32_t kept = 0;
  if (call.keys % 4 == 0) {
    const auto quad = static_cast<uint32_t>(((row + g % 2) * call.keys + key) >> 2) + g / 2;
    const auto step = static_cast<uint32_t>(2 * call.keys);  // eight queries further
    uint32_t mine = 0;
#pragma unroll
    for (int n = 0; n < kN; ++n) mine |= kept_of_quad(call, quad + n * step) << 4 * n;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t others = __shfl_sync(~0u, mine, ((i / 2 * 2 + g / 4) * 2 + i % 2) * 4 + t);
      kept |= (others >> g % 4 & 0x11111111) << i;
    }
    return kept;
  }
  for (int i = 0; i < 4 * kN; ++i)
    kept |= kept_of_element(call, (row + i / 4 * 8 + i % 2) * call.keys + key + g + i / 2 % 2 * 8) << i;
  return kept;
}

// Of scores as the products leave them, to powers of two. Their sign is in the left matrix, so that the largest product
// is the largest score; not 0, as -infinity stands for what is masked.
__device__ inline float exponent_scale(const AttentionView& call) {
  return fmaxf(fabsf(static_cast<float>(call.scale)) * kLog2E, FLT_MIN);
}
__device__ inline uint32_t sign_flip(const AttentionView& call) { return call.scale < 0 ? 0x80008000u : 0; }

// Sum or maximum over the four lanes that share a row.
template <class Op>
__device__ float across(float x, Op op) {
  x = op(x, __shfl_xor_sync(~0u, x, 1));
  return op(x, __shfl_xor_sync(~0u, x, 2));
}

// A block's warps own queries, the tiles are of keys and values.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) forward_kernel(AttentionView call, int64_t tiles, const bf16* q,
                                                           const bf16* k, const bf16* v, bf16* out, float* log_sums) {
  using Of = Sizes<kWidth>;
  constexpr int kM = Of::kM, kN = Of::kRows / 8;
  constexpr auto larger = [](float a, float b) { return fmaxf(a, b); };
  constexpr auto plus = [](float a, float b) { return a + b; };
  __shared__ Chunk ks[2][Of::kChunks], vs[2][Of::kChunks];
  const AttentionPlace place(call, tiles);
  const AttentionHeadView head = place.head;
  const int64_t first = place.tile * Of::kOwnRows + warp() * Of::kWarpRows;
  const float scale = exponent_scale(call);
  const auto load = [&](const KeyTile& tile, int stage) {
    load_tile<kWidth>(call, head, k, call.keys, tile.first, tile.attended, ks[stage]);
    load_tile<kWidth>(call, head, v, call.keys, tile.first, tile.attended, vs[stage]);
  };
  KeyTile tile = next_keys<Of::kRows>(call, head, 0);
  if (tile.attended != 0) load(tile, 0);
  typename Of::Left own;
  load_own<kWidth>(call, head, q, call.queries, first, sign_flip(call), own);
  typename Of::Sums o = {};
  float largest[kM][2], sum[kM][2] = {};
#pragma unroll
  for (int m = 0; m < kM; ++m) largest[m][0] = largest[m][1] = -FLT_MAX;

  for (int stage = 0; tile.attended != 0; stage ^= 1) {
    await_copies();
    __syncthreads();  // this tile is there, and everyone is done with the one before
    const KeyTile next = next_keys<Of::kRows>(call, head, tile.first + Of::kRows);
    if (next.attended != 0) load(next, stage ^ 1);
    float s[kM][kN][4];
    multiply_rows<kWidth>(own, ks[stage], 0, s);
    if (tile.attended != lowest(Of::kRows)) {
      const uint64_t attended = tile.attended >> 2 * (lane() % 4);
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if ((attended >> (8 * n + i % 2) & 1) == 0)
#pragma unroll
            for (int m = 0; m < kM; ++m) s[m][n][i] = -INFINITY;
    }
    uint32_t p[kN / 2][kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      uint32_t kept[2] = {};
      if (call.dropped > 0) kept_by_query<kN>(call, head, first + 16 * m, tile.first, kept);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float most = largest[m][r];
#pragma unroll
        for (int n = 0; n < kN; ++n) most = fmaxf(most, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
        most = across(most, larger);
        const float shift = most * scale, shrunk = exp2_approximate(largest[m][r] * scale - shift);
        largest[m][r] = most;
        sum[m][r] *= shrunk;
#pragma unroll
        for (int n = 0; n < Of::kColumns; ++n) o[m][n][2 * r] *= shrunk, o[m][n][2 * r + 1] *= shrunk;
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          float e[2];
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            e[c] = exp2_approximate(s[m][n][2 * r + c] * scale - shift);
            sum[m][r] += e[c];
            if (call.dropped > 0 && (kept[r] >> (4 * n + c) & 1) == 0) e[c] = 0;
          }
          p[n / 2][m][n % 2 * 2 + r] = pack_bf16(e[0], e[1]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kN / 2; ++n) add_rows<kWidth>(p[n], vs[stage], 16 * n, o);
    tile = next;
  }
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[m][r] = across(sum[m][r], plus);
      const int64_t row = first + 16 * m + lane() / 4 + 8 * r;
      if (lane() % 4 == 0 && row < call.queries)
        log_sums[head.number(call) * call.queries + row] = largest[m][r] * scale * kLn2 + logf(sum[m][r]);
    }
  write_own<kWidth>(call, head, out, call.queries, first, o, [&](int m, int r, float x) {
    return sum[m][r] == 0 ? 0 : x * (static_cast<float>(call.kept) / sum[m][r]);
  });
}

// delta [batch, heads, queries] = Σ d_out · out: kColumns lanes a row, eight elements each.
template <int kWidth>
__global__ void delta_kernel(AttentionView call, const bf16* out, const bf16* d_out, float* delta) {
  constexpr int kColumns = Sizes<kWidth>::kColumns;
  const int64_t rows = call.batch * call.queries * call.heads, step = grid_threads() / kColumns;
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  for (int64_t start = 0, row = grid_thread() / kColumns; start < rows; start += step, row += step) {
    float sum = 0;
    if (row < rows && 8 * column < call.width) {
      const auto a = load_pack<8>(out + row * call.width, column), b = load_pack<8>(d_out + row * call.width, column);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += float(a.values[i]) * float(b.values[i]);
    }
#pragma unroll
    for (int mask = kColumns / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    const int64_t h = row % call.heads, i = row / call.heads % call.queries, b = row / call.heads / call.queries;
    if (column == 0 && row < rows) delta[(b * call.heads + h) * call.queries + i] = sum;
  }
}

// A block's warps own queries, the tiles are of keys and values: dq = scale · Σ ds · k.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    query_gradients_kernel(AttentionView call, int64_t tiles, const bf16* q, const bf16* k, const bf16* v,
                           const bf16* d_out, const float* log_sums, const float* delta, bf16* dq) {
  using Of = Sizes<kWidth>;
  constexpr int kM = Of::kM, kN = Of::kRows / 8;
  __shared__ Chunk ks[2][Of::kChunks], vs[2][Of::kChunks];
  const AttentionPlace place(call, tiles);
  const AttentionHeadView head = place.head;
  const int64_t first = place.tile * Of::kOwnRows + warp() * Of::kWarpRows;
  const float scale = exponent_scale(call), keeps = static_cast<float>(call.kept);
  const auto load = [&](const KeyTile& tile, int stage) {
    load_tile<kWidth>(call, head, k, call.keys, tile.first, tile.attended, ks[stage]);
    load_tile<kWidth>(call, head, v, call.keys, tile.first, tile.attended, vs[stage]);
  };
  KeyTile tile = next_keys<Of::kRows>(call, head, 0);
  if (tile.attended != 0) load(tile, 0);
  typename Of::Left own_q, own_g;
  load_own<kWidth>(call, head, q, call.queries, first, sign_flip(call), own_q);
  load_own<kWidth>(call, head, d_out, call.queries, first, 0, own_g);
  float exponents[kM][2], deltas[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t row = first + 16 * m + lane() / 4 + 8 * r, at = head.number(call) * call.queries + row;
      exponents[m][r] = row < call.queries ? log_sums[at] * kLog2E : INFINITY;
      deltas[m][r] = row < call.queries ? delta[at] : 0;
    }
  typename Of::Sums sums = {};

  for (int stage = 0; tile.attended != 0; stage ^= 1) {
    await_copies();
    __syncthreads();  // this tile is there, and everyone is done with the one before
    const KeyTile next = next_keys<Of::kRows>(call, head, tile.first + Of::kRows);
    if (next.attended != 0) load(next, stage ^ 1);
    uint32_t kept[kM][2] = {};
#pragma unroll
    for (int m = 0; m < kM; ++m)
      if (call.dropped > 0) kept_by_query<kN>(call, head, first + 16 * m, tile.first, kept[m]);
#pragma unroll 1
    for (int n = 0; n < kN; n += 2) {  // sixteen keys
      const auto attended = static_cast<uint32_t>(tile.attended >> 8 * n) & 0xFFFF;
      if (attended == 0) continue;
      float s[kM][2][4], dp[kM][2][4];
      multiply_rows<kWidth>(own_q, ks[stage], 8 * n, s);
      multiply_rows<kWidth>(own_g, vs[stage], 8 * n, dp);
      uint32_t ds[kM][4];
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float gradient[2];
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              const float p = exp2_approximate(s[m][half][2 * r + c] * scale - exponents[m][r]);
              float of_p = dp[m][half][2 * r + c];
              if (call.dropped > 0) of_p = (kept[m][r] >> (4 * (n + half) + c) & 1) != 0 ? of_p * keeps : 0;
              const bool counts = (attended >> (8 * half + 2 * (lane() % 4) + c) & 1) != 0;
              gradient[c] = counts ? p * (of_p - deltas[m][r]) : 0;
            }
            ds[m][2 * half + r] = pack_bf16(gradient[0], gradient[1]);
          }
      add_rows<kWidth>(ds, ks[stage], 8 * n, sums);
    }
    tile = next;
  }
  const auto factor = static_cast<float>(call.scale);
  write_own<kWidth>(call, head, dq, call.queries, first, sums, [&](int, int, float x) { return x * factor; });
}

// A block's warps own keys and values, the tiles are of queries: dv = Σ pᵀ · d_out and dk = scale · Σ dsᵀ · q.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    key_gradients_kernel(AttentionView call, int64_t tiles, const bf16* q, const bf16* k, const bf16* v,
                         const bf16* d_out, const float* log_sums, const float* delta, bf16* dk, bf16* dv) {
  using Of = Sizes<kWidth>;
  constexpr int kM = Of::kM, kN = Of::kRows / 8;
  __shared__ Chunk qs[2][Of::kChunks], gs[2][Of::kChunks];
  struct alignas(8) Query {
    float exponent, delta;
  };
  __shared__ Query of_queries[2][Of::kRows];
  const AttentionPlace place(call, tiles);
  const AttentionHeadView head = place.head;
  const int64_t of_block = place.tile * Of::kOwnRows, first = of_block + warp() * Of::kWarpRows;
  const float scale = exponent_scale(call), keeps = static_cast<float>(call.kept);
  uint32_t attended = 0;  // of the warp's keys
  bool any = false;       // of the block's
  for (int w = 0; w < kWarps; ++w) {
    const int64_t key = of_block + w * Of::kWarpRows + lane();
    const uint32_t bits = __ballot_sync(~0u, lane() < Of::kWarpRows && head.attended(call, key));
    if (w == warp()) attended = bits;
    any = any || bits != 0;
  }
  const auto load = [&](int64_t query, int stage) {
    const uint64_t there = lowest(call.queries - query);
    load_tile<kWidth>(call, head, q, call.queries, query, there, qs[stage]);
    load_tile<kWidth>(call, head, d_out, call.queries, query, there, gs[stage]);
    for (int i = static_cast<int>(threadIdx.x); i < Of::kRows; i += kThreads) {
      const int64_t at = head.number(call) * call.queries + query + i;
      const bool counts = query + i < call.queries;
      of_queries[stage][i] = {counts ? log_sums[at] * kLog2E : INFINITY, counts ? delta[at] : 0};
    }
  };
  if (any) load(0, 0);
  typename Of::Left own_k, own_v;
  load_own<kWidth>(call, head, k, call.keys, first, sign_flip(call), own_k);
  load_own<kWidth>(call, head, v, call.keys, first, 0, own_v);
  typename Of::Sums of_k = {}, of_v = {};

  int stage = 0;
  for (int64_t query = 0; any && query < call.queries; query += Of::kRows, stage ^= 1) {
    await_copies();
    __syncthreads();  // this tile is there, and everyone is done with the one before
    if (query + Of::kRows < call.queries) load(query + Of::kRows, stage ^ 1);
    if (attended == 0) continue;
    uint32_t kept[kM] = {};
#pragma unroll
    for (int m = 0; m < kM; ++m)
      if (call.dropped > 0) kept[m] = kept_by_key<kN>(call, head, query, first + 16 * m);
#pragma unroll 1
    for (int n = 0; n < kN; n += 2) {  // sixteen queries
      float s[kM][2][4], dp[kM][2][4];
      multiply_rows<kWidth>(own_k, qs[stage], 8 * n, s);
      multiply_rows<kWidth>(own_v, gs[stage], 8 * n, dp);
      uint32_t p[kM][4], ds[kM][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Query* of_column = of_queries[stage] + 8 * (n + half) + 2 * (lane() % 4);
        const Query of[2] = {of_column[0], of_column[1]};
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float probability[2], gradient[2];
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              probability[c] = exp2_approximate(s[m][half][2 * r + c] * scale - of[c].exponent);
              float of_p = dp[m][half][2 * r + c];
              const bool drops = call.dropped > 0 && (kept[m] >> (4 * (n + half) + 2 * r + c) & 1) == 0;
              gradient[c] = probability[c] * ((drops ? 0 : of_p * keeps) - of[c].delta);
              if (drops) probability[c] = 0;
            }
            p[m][2 * half + r] = pack_bf16(probability[0], probability[1]);
            ds[m][2 * half + r] = pack_bf16(gradient[0], gradient[1]);
          }
      }
      add_rows<kWidth>(p, gs[stage], 8 * n, of_v);
      add_rows<kWidth>(ds, qs[stage], 8 * n, of_k);
    }
  }
  const auto factor = static_cast<float>(call.scale);
  const auto counts = [&](int m, int r) { return (attended >> (16 * m + lane() / 4 + 8 * r) & 1) != 0; };
  if (dk)
    write_own<kWidth>(call, head, dk, call.keys, first, of_k,
                      [&](int m, int r, float x) { return counts(m, r) ? x * factor : 0; });
  if (dv)
    write_own<kWidth>(call, head, dv, call.keys, first, of_v,
                      [&](int m, int r, float x) { return counts(m, r) ? x * keeps : 0; });
}

template <class F>
void dispatch_width(int64_t width, const F& f) {
  if (width <= 32) f(std::integral_constant<int, 32>());
  else if (width <= 64) f(std::integral_constant<int, 64>());
  else f(std::integral_constant<int, 128>());
}

bf16* data_or_null(const Tensor& x) { return x.defined() ? x.cuda_data<bf16>() : nullptr; }

}  // namespace

bool attention_on_tensor_cores(const AttentionTensors& t, const Tensor& d_out) {
  const int64_t width = t.q.dim(3);
  return t.q.dtype() == DType::bf16 && width % 8 == 0 && width <= 128 &&
         aligned_to<16>(t.q.address(), t.k.address(), t.v.address(), t.out.address()) &&
         (!d_out.defined() || aligned_to<16>(d_out.address()));
}

void attention_forward_mma(Cuda device, const AttentionTensors& t, const AttentionOptions& options) {
  const AttentionView call(t, options);
  dispatch_width(call.width, [&](auto width) {
    const int64_t tiles = Sizes<width()>::tiles(call.queries);
    launch(device, "attention", forward_kernel<width()>, call.batch * call.heads * tiles, kThreads, call, tiles,
           t.q.cuda_data<bf16>(), t.k.cuda_data<bf16>(), t.v.cuda_data<bf16>(), t.out.cuda_data<bf16>(),
           t.log_sums.cuda_data<float>());
  });
}

void attention_backward_mma(Cuda device, const AttentionTensors& t, const AttentionOptions& options,
                            const AttentionGradients& d) {
  const AttentionView call(t, options);
  const Tensor delta(t.log_sums.shape(), DType::f32, t.q.device());
  const bf16 *q = t.q.cuda_data<bf16>(), *k = t.k.cuda_data<bf16>(), *v = t.v.cuda_data<bf16>();
  const bf16 *out = t.out.cuda_data<bf16>(), *d_out = d.out.cuda_data<bf16>();
  const float *log_sums = t.log_sums.cuda_data<float>(), *deltas = delta.cuda_data<float>();
  dispatch_width(call.width, [&](auto width) {
    using Of = Sizes<width()>;
    launch(device, "attention", delta_kernel<width()>, blocks_for(device, delta.numel() * Of::kColumns), kBlock, call,
           out, d_out, delta.cuda_data<float>());
    const int64_t queries = Of::tiles(call.queries), keys = Of::tiles(call.keys), heads = call.batch * call.heads;
    if (d.q.defined())
      launch(device, "attention", query_gradients_kernel<width()>, heads * queries, kThreads, call, queries, q, k, v,
             d_out, log_sums, deltas, d.q.cuda_data<bf16>());
    if (d.k.defined() || d.v.defined())
      launch(device, "attention", key_gradients_kernel<width()>, heads * keys, kThreads, call, keys, q, k, v, d_out,
             log_sums, deltas, data_or_null(d.k), data_or_null(d.v));
  });
}

}  // namespace godwit::detail
