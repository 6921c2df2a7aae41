// Kernels whose warps share the rows of the block, so that wide heads fit 128 registers per thread. Each warp computes
// a part of a tile of scores, and writes probabilities or gradients of scores to shared memory. It then reads the
// values of all warps, and adds their products with a part of the columns to its sums.
#include "autograd/ops/attention/cuda/attention_mma.h"
#include "autograd/ops/attention/cuda/attention_softmax.h"

namespace godwit::detail {
namespace {

// The parts of a block's warps, for `own` own rows and tiles of `rows` rows. A warp computes scores of 16 own rows and
// 8 · kN rows of the tile, and sums of 32 own rows and 8 · kPart columns of one of `matrices` matrices.
template <int width, int warps, int own, int rows, int matrices = 1>
struct Parts : Sizes<width, 1, rows> {
  static constexpr int kThreads = 32 * warps, kOwnRows = own;
  static constexpr int kBlocks = 16 / warps;  // of a multiprocessor, which leaves 128 registers per thread
  static constexpr int kN = own / 16 * (rows / 8) / warps;
  static constexpr int kWarps = warps / matrices;  // of one matrix
  static constexpr int kPart = width / 8 * (own / 32) / kWarps;
  using Sums = float[2][kPart][4];
  struct All : Sizes<width, 1, own> {  // a tile of all own rows
    static constexpr int kThreads = Parts::kThreads;
  };
  static int64_t tiles(int64_t length) { return (length + kOwnRows - 1) / kOwnRows; }

  // Of the scores: first own row, first row of the tile.
  static __device__ int score_row() { return warp() % (own / 16) * 16; }
  static __device__ int tile_row() { return warp() / (own / 16) * 8 * kN; }
  // Of the sums: matrix, first own row, first group of eight columns.
  static __device__ int matrix() { return warp() / kWarps; }
  static __device__ int row() { return warp() % (own / 32) * 32; }
  static __device__ int column() { return warp() % kWarps / (own / 32) * kPart; }

  // The left operand of the sums, in shared memory: [own rows, rows of the tile].
  struct Left {
    using In = Sizes<rows, 1, own>;
    Chunk chunks[own * rows / 8];

    // Writes two values of the warp's part: row lane / 4 + 8r, columns 8n + 2(lane % 4) and the next.
    __device__ void write(int n, int r, uint32_t word) {
      chunks[In::place(score_row() + lane() / 4 + 8 * r, tile_row() / 8 + n)].words[lane() % 4] = word;
    }
    // sums += left · tile, in the warp's part.
    __device__ void add(const Chunk* tile, Sums& sums) const {
#pragma unroll
      for (int k = 0; k < rows / 16; ++k) {
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; ++m)
          load_matrices(a[m], chunks + (row() + 16 * m) * In::kColumns + (In::place(lane() % 16, lane() / 16) ^ 2 * k));
        add_rows<Parts>(a, tile, 16 * k, sums, column());
      }
    }
  };
};

template <int kWidth>
using Forward = Parts<kWidth, 4, 64, 32>;
template <int kWidth>
using Queries = Parts<kWidth, 8, 64, 32>;
template <int kWidth>
using Keys = Parts<kWidth, 8, kWidth == 64 ? 64 : 32, 32, 2>;

// The block owns queries; the tiles are keys and values.
template <int kWidth>
__global__ void __launch_bounds__(Forward<kWidth>::kThreads, Forward<kWidth>::kBlocks)
    forward_kernel(AttentionView call, int64_t tiles, const bf16* q, const bf16* k, const bf16* v, bf16* out,
                   float* log_sums) {
  using Of = Forward<kWidth>;
  constexpr int kN = Of::kN;
  using Own = OwnRows<Of, 0>;
  __shared__ typename Own::Memory memory;
  __shared__ Chunk ks[Of::kChunks], vs[Of::kChunks];
  __shared__ typename Of::Left ps;
  __shared__ float factors[Of::kOwnRows], inverses[Of::kOwnRows];
  const AttentionPlace place(call, tiles);
  const AttentionHeadView head = place.head;
  const int64_t of_block = place.tile * Of::kOwnRows, first = of_block + Of::score_row();
  const float scale = exponent_scale(call);
  const TileRows<Of> of_k(call, head.keys(call), k), of_v(call, head.keys(call), v);
  const int64_t end = call.keys_end(of_block + Of::kOwnRows - 1);
  KeyTile tile = next_keys<Of::kRows>(call, head, 0, end);
  if (tile.attended != 0) of_k.load(tile.first, tile.attended, ks);
  const Own own(call, head.queries(call), q, first, sign_flip(call), of_block, memory);
  const auto write_rows = [](const float(&of_row)[1][2], float* to) {
    if (lane() % 4 == 0)
      for (int r = 0; r < 2; ++r) to[Of::score_row() + lane() / 4 + 8 * r] = of_row[0][r];
  };
  Softmax<1> softmax;
  typename Of::Sums o = {};

  while (tile.attended != 0) {
    await_copies();
    __syncthreads();  // the keys are loaded; all threads have read the previous values and probabilities
    of_v.load(tile.first, tile.attended, vs);
    float s[1][kN][4], shrunk[1][2];
    multiply_rows<Of>(own, ks, 0, s);
    mask_scores(call, tile, first, s);
    uint32_t p[kN / 2][1][4];
    softmax.add(call, head, first, tile.first, scale, s, p, shrunk);
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) ps.write(n, r, p[n / 2][0][n % 2 * 2 + r]);
    write_rows(shrunk, factors);
    tile = next_keys<Of::kRows>(call, head, tile.first + Of::kRows, end);
    await_copies();
    __syncthreads();  // values and probabilities are there; all threads have read the keys
    if (tile.attended != 0) of_k.load(tile.first, tile.attended, ks);
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float factor = factors[Of::row() + 16 * m + lane() / 4 + 8 * r];
#pragma unroll
        for (int n = 0; n < Of::kPart; ++n) o[m][n][2 * r] *= factor, o[m][n][2 * r + 1] *= factor;
      }
    ps.add(vs, o);
  }
  await_copies();  // of the own rows, if there was no tile
  float inverse[1][2];
  softmax.finish(call, head, first, scale, log_sums, inverse);
  write_rows(inverse, inverses);
  __syncthreads();
  const float* of_row = inverses + Of::row() + lane() / 4;
  write_own(call, head.results(call), out, of_block + Of::row(), Of::column(), o,
            [&](int m, int r, float x) { return x * of_row[16 * m + 8 * r]; });
}

// Exponent and delta of a query.
struct alignas(8) Query {
  float exponent, delta;
};

// Query `query` of a head, number `at` of all heads.
__device__ Query query_at(const AttentionView& call, const float* log_sums, const float* delta, int64_t query,
                          int64_t at) {
  const bool counts = query < call.queries;
  return {counts ? log_sums[at] * kLog2E : INFINITY, counts ? delta[at] : 0};
}

// The block owns queries; the tiles are keys and values: dq = scale · Σ ds · k.
template <int kWidth>
__global__ void __launch_bounds__(Queries<kWidth>::kThreads, Queries<kWidth>::kBlocks)
    query_gradients_kernel(AttentionView call, int64_t tiles, const bf16* q, const bf16* k, const bf16* v,
                           const bf16* d_out, const float* log_sums, const float* delta, bf16* dq) {
  using Of = Queries<kWidth>;
  constexpr int kN = Of::kN;
  using OwnGradients = OwnRows<Of, kWidth == 64 ? Of::kSteps : 2>;
  __shared__ typename OwnGradients::Memory memory;
  __shared__ Chunk ks[2][Of::kChunks], vs[Of::kChunks];
  __shared__ typename Of::Left left;
  __shared__ Query of_queries[Of::kOwnRows];
  const AttentionPlace place(call, tiles);
  const AttentionHeadView head = place.head;
  const int64_t of_block = place.tile * Of::kOwnRows, first = of_block + Of::score_row();
  const float scale = exponent_scale(call), keeps = static_cast<float>(call.kept);
  const TileRows<Of> of_k(call, head.keys(call), k), of_v(call, head.keys(call), v);
  const int64_t end = call.keys_end(of_block + Of::kOwnRows - 1);
  KeyTile tile = next_keys<Of::kRows>(call, head, 0, end);
  if (tile.attended != 0) {
    of_k.load(tile.first, tile.attended, ks[0]);
    of_v.load(tile.first, tile.attended, vs);
  }
  const OwnRows<Of> own_q(call, head.queries(call), q, first, sign_flip(call));
  const OwnGradients own_g(call, head.results(call), d_out, first, 0, of_block, memory);
  for (int i = static_cast<int>(threadIdx.x); i < Of::kOwnRows; i += Of::kThreads)
    of_queries[i] = query_at(call, log_sums, delta, of_block + i, head.number(call) * call.queries + of_block + i);
  typename Of::Sums sums = {};

  for (int stage = 0; tile.attended != 0; stage ^= 1) {
    await_copies();
    __syncthreads();  // this tile is loaded; all threads have finished the previous one
    const KeyTile next = next_keys<Of::kRows>(call, head, tile.first + Of::kRows, end);
    if (next.attended != 0) of_k.load(next.first, next.attended, ks[stage ^ 1]);
    uint32_t kept[2] = {};
    if (call.dropped > 0) kept_by_query<kN>(call, head, first, tile.first + Of::tile_row(), kept);
    float s[1][kN][4], dp[1][kN][4];
    multiply_rows<Of>(own_q, ks[stage], Of::tile_row(), s);
    multiply_rows<Of>(own_g, vs, Of::tile_row(), dp);
    const int from = Of::tile_row() + 2 * (lane() % 4);
    const auto attended = static_cast<uint32_t>(tile.attended >> from);
    const int ahead = within_tiles(first + lane() / 4 + call.past - tile.first - from);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Query of = of_queries[Of::score_row() + lane() / 4 + 8 * r];
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        float gradient[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float p = exp2_approximate(s[0][n][2 * r + c] * scale - of.exponent);
          float of_p = dp[0][n][2 * r + c];
          if (call.dropped > 0) of_p = (kept[r] >> (4 * n + c) & 1) != 0 ? of_p * keeps : 0;
          const bool counts = (attended >> (8 * n + c) & 1) != 0 && 8 * n + c <= 8 * r + ahead;
          gradient[c] = counts ? p * (of_p - of.delta) : 0;
        }
        left.write(n, r, pack_bf16(gradient[0], gradient[1]));
      }
    }
    __syncthreads();  // all gradients of scores are there; all threads have read the values
    if (next.attended != 0) of_v.load(next.first, next.attended, vs);
    left.add(ks[stage], sums);
    tile = next;
  }
  await_copies();  // of the own rows, if there was no tile
  const auto factor = static_cast<float>(call.scale);
  write_own(call, head.queries(call), dq, of_block + Of::row(), Of::column(), sums,
            [&](int, int, float x) { return x * factor; });
}

// The block owns keys and values; the tiles are queries of all heads that share them: dv = Σ pᵀ · d_out and
// dk = scale · Σ dsᵀ · q. Half of the warps keep dv, the others dk.
template <int kWidth>
__global__ void __launch_bounds__(Keys<kWidth>::kThreads, Keys<kWidth>::kBlocks)
    key_gradients_kernel(AttentionView call, int64_t tiles, const bf16* q, const bf16* k, const bf16* v,
                         const bf16* d_out, const float* log_sums, const float* delta, bf16* dk, bf16* dv) {
  using Of = Keys<kWidth>;
  constexpr int kN = Of::kN;
  using OwnValues = OwnRows<Of, kWidth == 64 ? Of::kSteps : 6>;
  __shared__ typename OwnValues::Memory memory;
  __shared__ Chunk qs[2][Of::kChunks], gs[2][Of::kChunks];
  __shared__ typename Of::Left left[2];  // probabilities, gradients of scores
  __shared__ Query of_queries[2][Of::kRows];
  const AttentionPlace place(call, tiles, call.group);
  AttentionHeadView head = place.head;
  const AttentionRows keys = head.keys(call);
  const int64_t of_block = place.tile * Of::kOwnRows, first = of_block + Of::score_row();
  const float scale = exponent_scale(call), keeps = static_cast<float>(call.kept);
  uint32_t attended = 0;  // keys of the warp's sums
  bool any = false;       // any key of the block
  for (int row = 0; row < Of::kOwnRows; row += 32) {
    const uint32_t bits = __ballot_sync(~0u, head.attended(call, of_block + row + lane()));
    if (row == Of::row()) attended = bits;
    any = any || bits != 0;
  }
  const TileRows<Of> of_q(call, head.queries(call), q), of_g(call, head.results(call), d_out);
  const auto load = [&](int64_t member, int64_t query, int stage) {  // of the heads that share the keys
    const uint64_t there = lowest(call.queries - query);
    of_q.load(query, there, qs[stage], member * call.width);
    of_g.load(query, there, gs[stage], member * call.width);
    const int64_t at = (place.head.number(call) + member) * call.queries + query;
    for (int i = static_cast<int>(threadIdx.x); i < Of::kRows; i += Of::kThreads)
      of_queries[stage][i] = query_at(call, log_sums, delta, query + i, at + i);
  };
  const int64_t start = call.first_query(of_block, Of::kRows);
  if (any) load(0, start, 0);
  const OwnRows<Of> own_k(call, keys, k, first, sign_flip(call));
  const OwnValues own_v(call, keys, v, first, 0, of_block, memory);
  typename Of::Sums sums = {};

  int stage = 0;
  for (int64_t member = 0, query = start, next_member, next; any && member < call.group;
       member = next_member, query = next, stage ^= 1) {
    next = query + Of::kRows < call.queries ? query + Of::kRows : start;
    next_member = next == start ? member + 1 : member;
    await_copies();
    __syncthreads();  // this tile is loaded; all threads have finished the previous one
    if (next_member < call.group) load(next_member, next, stage ^ 1);
    head.h = place.head.h + member;
    uint32_t kept = 0;
    if (call.dropped > 0) kept = kept_by_key<kN>(call, head, query + Of::tile_row(), first);
    float s[1][kN][4], dp[1][kN][4];
    multiply_rows<Of>(own_k, qs[stage], Of::tile_row(), s);
    multiply_rows<Of>(own_v, gs[stage], Of::tile_row(), dp);
    const int from = Of::tile_row() + 2 * (lane() % 4);
    const int ahead = within_tiles(query + from + call.past - first - lane() / 4);
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const Query of[2] = {of_queries[stage][from + 8 * n], of_queries[stage][from + 8 * n + 1]};
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float probability[2], gradient[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          probability[c] = exp2_approximate(s[0][n][2 * r + c] * scale - of[c].exponent);
          const float of_p = dp[0][n][2 * r + c];
          const bool drops = call.dropped > 0 && (kept >> (4 * n + 2 * r + c) & 1) == 0;
          gradient[c] = probability[c] * ((drops ? 0 : of_p * keeps) - of[c].delta);
          const bool counts = 8 * r <= 8 * n + c + ahead;
          if (drops || !counts) probability[c] = 0;
          if (!counts) gradient[c] = 0;
        }
        left[0].write(n, r, pack_bf16(probability[0], probability[1]));
        left[1].write(n, r, pack_bf16(gradient[0], gradient[1]));
      }
    }
    __syncthreads();  // all probabilities and gradients of scores are there
    left[Of::matrix()].add(Of::matrix() == 0 ? gs[stage] : qs[stage], sums);
  }
  await_copies();  // of the own rows, if there was no tile
  bf16* const to = Of::matrix() == 0 ? dv : dk;
  const float factor = Of::matrix() == 0 ? keeps : static_cast<float>(call.scale);
  const auto value = [&](int m, int r, float x) {
    return (attended >> (16 * m + lane() / 4 + 8 * r) & 1) != 0 ? x * factor : 0;
  };
  if (to) write_own(call, keys, to, of_block + Of::row(), Of::column(), sums, value);
}

template <class F>
void dispatch_width(int64_t width, const F& f) {
  if (width <= 64) f(std::integral_constant<int, 64>());
  else f(std::integral_constant<int, 128>());
}

bf16* data_or_null(const Tensor& x) { return x.defined() ? x.cuda_data<bf16>() : nullptr; }

}  // namespace

void attention_forward_parts(Cuda device, const AttentionTensors& t, const AttentionOptions& options) {
  const AttentionView call(t, options);
  using Of = Forward<128>;
  const int64_t tiles = Of::tiles(call.queries);
  launch(device, "attention", forward_kernel<128>, call.batch * call.heads * tiles, Of::kThreads, call, tiles,
         t.q.cuda_data<bf16>(), t.k.cuda_data<bf16>(), t.v.cuda_data<bf16>(), t.out.cuda_data<bf16>(),
         t.log_sums.cuda_data<float>());
}

void attention_backward_parts(Cuda device, const AttentionTensors& t, const AttentionOptions& options,
                              const AttentionGradients& d, const float* delta) {
  const AttentionView call(t, options);
  const bf16 *q = t.q.cuda_data<bf16>(), *k = t.k.cuda_data<bf16>(), *v = t.v.cuda_data<bf16>();
  const bf16* d_out = d.out.cuda_data<bf16>();
  const float* log_sums = t.log_sums.cuda_data<float>();
  dispatch_width(call.width, [&](auto width) {
    using OfQueries = Queries<width()>;
    using OfKeys = Keys<width()>;
    const int64_t queries = OfQueries::tiles(call.queries), keys = OfKeys::tiles(call.keys),
                  heads = call.batch * call.heads;
    if (d.q.defined())
      launch(device, "attention", query_gradients_kernel<width()>, heads * queries, OfQueries::kThreads, call, queries,
             q, k, v, d_out, log_sums, delta, d.q.cuda_data<bf16>());
    if (d.k.defined() || d.v.defined())
      launch(device, "attention", key_gradients_kernel<width()>, heads / call.group * keys, OfKeys::kThreads, call,
             keys, q, k, v, d_out, log_sums, delta, data_or_null(d.k), data_or_null(d.v));
  });
}

}  // namespace godwit::detail
