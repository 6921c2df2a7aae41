// Each warp keeps its own rows and their sums in registers. The other operand is loaded tile by tile through shared
// memory; the next tile is prefetched while one is multiplied (Dao 2023, "FlashAttention-2"). The output registers of
// one product are the left operand of the next, so scores and probabilities are never written to memory.
#include "autograd/ops/attention/cuda/attention_mma.h"
#include "autograd/ops/attention/cuda/attention_softmax.h"

namespace godwit::detail {
namespace {

// Heads up to 32 wide: a larger tile, of which each load serves two products, and more registers.
template <int kWidth>
using Forward = Sizes<kWidth, kWidth == 32 ? 2 : 1, kWidth == 32 ? 64 : 32>;
using Backward = Sizes<32, 2, 64>;
// Blocks per multiprocessor; the compiler limits registers accordingly.
template <int kWidth>
constexpr int kForwardBlocks = kWidth == 32 ? 2 : 4;
constexpr int kQueryBlocks = 3, kKeyBlocks = 2;

// The warps of a block own queries; the tiles are keys and values.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, kForwardBlocks<kWidth>)
    forward_kernel(AttentionView call, int64_t tiles, const bf16* q, const bf16* k, const bf16* v, bf16* out,
                   float* log_sums) {
  using Of = Forward<kWidth>;
  constexpr int kM = Of::kM, kN = Of::kRows / 8;
  __shared__ Chunk ks[2][Of::kChunks], vs[2][Of::kChunks];
  const AttentionPlace place(call, tiles);
  const AttentionHeadView head = place.head;
  const int64_t first = place.tile * Of::kOwnRows + warp() * Of::kWarpRows;
  const float scale = exponent_scale(call);
  const TileRows<Of> of_k(call, head.keys(call), k), of_v(call, head.keys(call), v);
  const auto load = [&](const KeyTile& tile, int stage) {
    of_k.load(tile.first, tile.attended, ks[stage]);
    of_v.load(tile.first, tile.attended, vs[stage]);
  };
  const int64_t end = call.keys_end((place.tile + 1) * Of::kOwnRows - 1);
  KeyTile tile = next_keys<Of::kRows>(call, head, 0, end);
  if (tile.attended != 0) load(tile, 0);
  const OwnRows<Of> own(call, head.queries(call), q, first, sign_flip(call));
  Softmax<kM> softmax;
  typename Of::Sums o = {};

  for (int stage = 0; tile.attended != 0; stage ^= 1) {
    await_copies();
    __syncthreads();  // this tile is loaded; all threads have finished the previous one
    const KeyTile next = next_keys<Of::kRows>(call, head, tile.first + Of::kRows, end);
    if (next.attended != 0) load(next, stage ^ 1);
    float s[kM][kN][4], shrunk[kM][2];
    multiply_rows<Of>(own, ks[stage], 0, s);
    mask_scores(call, tile, first, s);
    uint32_t p[kN / 2][kM][4];
    softmax.add(call, head, first, tile.first, scale, s, p, shrunk);
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < Of::kColumns; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) o[m][n][i] *= shrunk[m][i / 2];
#pragma unroll
    for (int n = 0; n < kN / 2; ++n) add_rows<Of>(p[n], vs[stage], 16 * n, o);
    tile = next;
  }
  float inverse[kM][2];
  softmax.finish(call, head, first, scale, log_sums, inverse);
  write_own(call, head.results(call), out, first, 0, o, [&](int m, int r, float x) { return x * inverse[m][r]; });
}

// delta [batch, heads, queries] = Σ d_out · out; kColumns lanes per row, eight elements each.
template <int kWidth>
__global__ void delta_kernel(AttentionView call, uint32_t rows, const bf16* out, const bf16* d_out, float* delta) {
  constexpr int kColumns = kWidth / 8;
  const uint32_t heads = static_cast<uint32_t>(call.heads), queries = static_cast<uint32_t>(call.queries);
  const uint32_t step = grid_threads32() / kColumns;
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  for (uint32_t start = 0, row = grid_thread32() / kColumns; start < rows; start += step, row += step) {
    float sum = 0;
    if (row < rows && 8 * column < call.width) {
      const auto a = load_pack<8>(out + row * call.width, column), b = load_pack<8>(d_out + row * call.width, column);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += float(a.values[i]) * float(b.values[i]);
    }
#pragma unroll
    for (int mask = kColumns / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    const uint32_t query = row / heads, b = query / queries, h = row - query * heads, i = query - b * queries;
    if (column == 0 && row < rows) delta[(int64_t{b} * heads + h) * queries + i] = sum;
  }
}

// The warps of a block own queries; the tiles are keys and values: dq = scale · Σ ds · k.
__global__ void __launch_bounds__(kThreads, kQueryBlocks)
    query_gradients_kernel(AttentionView call, int64_t tiles, const bf16* q, const bf16* k, const bf16* v,
                           const bf16* d_out, const float* log_sums, const float* delta, bf16* dq) {
  using Of = Backward;
  constexpr int kM = Of::kM, kN = Of::kRows / 8;
  __shared__ Chunk ks[2][Of::kChunks], vs[2][Of::kChunks];
  const AttentionPlace place(call, tiles);
  const AttentionHeadView head = place.head;
  const int64_t of_block = place.tile * Of::kOwnRows, first = of_block + warp() * Of::kWarpRows;
  const float scale = exponent_scale(call), keeps = static_cast<float>(call.kept);
  const TileRows<Of> of_k(call, head.keys(call), k), of_v(call, head.keys(call), v);
  const auto load = [&](const KeyTile& tile, int stage) {
    of_k.load(tile.first, tile.attended, ks[stage]);
    of_v.load(tile.first, tile.attended, vs[stage]);
  };
  const int64_t end = call.keys_end((place.tile + 1) * Of::kOwnRows - 1);
  KeyTile tile = next_keys<Of::kRows>(call, head, 0, end);
  if (tile.attended != 0) load(tile, 0);
  const OwnRows<Of> own_q(call, head.queries(call), q, first, sign_flip(call));
  const OwnRows<Of> own_g(call, head.results(call), d_out, first, 0);
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
    __syncthreads();  // this tile is loaded; all threads have finished the previous one
    const KeyTile next = next_keys<Of::kRows>(call, head, tile.first + Of::kRows, end);
    if (next.attended != 0) load(next, stage ^ 1);
    const int ahead = within_tiles(first + lane() / 4 + call.past - tile.first - 2 * (lane() % 4));
    uint32_t kept[kM][2] = {};
#pragma unroll
    for (int m = 0; m < kM; ++m)
      if (call.dropped > 0) kept_by_query<kN>(call, head, first + 16 * m, tile.first, kept[m]);
#pragma unroll 1
    for (int n = 0; n < kN; n += 2) {  // sixteen keys
      const auto attended = static_cast<uint32_t>(tile.attended >> 8 * n) & 0xFFFF;
      if (attended == 0) continue;
      float s[kM][2][4], dp[kM][2][4];
      multiply_rows<Of>(own_q, ks[stage], 8 * n, s);
      multiply_rows<Of>(own_g, vs[stage], 8 * n, dp);
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
              const int column = 8 * half + 2 * (lane() % 4) + c;
              const bool counts = (attended >> column & 1) != 0 && 8 * (n + half) + c <= 16 * m + 8 * r + ahead;
              gradient[c] = counts ? p * (of_p - deltas[m][r]) : 0;
            }
            ds[m][2 * half + r] = pack_bf16(gradient[0], gradient[1]);
          }
      add_rows<Of>(ds, ks[stage], 8 * n, sums);
    }
    tile = next;
  }
  const auto factor = static_cast<float>(call.scale);
  write_own(call, head.queries(call), dq, first, 0, sums, [&](int, int, float x) { return x * factor; });
}

// The warps of a block own keys and values; the tiles are queries of all heads that share them: dv = Σ pᵀ · d_out and
// dk = scale · Σ dsᵀ · q.
__global__ void __launch_bounds__(kThreads, kKeyBlocks)
    key_gradients_kernel(AttentionView call, int64_t tiles, const bf16* q, const bf16* k, const bf16* v,
                         const bf16* d_out, const float* log_sums, const float* delta, bf16* dk, bf16* dv) {
  using Of = Backward;
  constexpr int kM = Of::kM, kN = Of::kRows / 8;
  __shared__ Chunk qs[2][Of::kChunks], gs[2][Of::kChunks];
  struct alignas(8) Query {
    float exponent, delta;
  };
  __shared__ Query of_queries[2][Of::kRows];
  const AttentionPlace place(call, tiles, call.group);
  AttentionHeadView head = place.head;
  const AttentionRows keys = head.keys(call);
  const int64_t of_block = place.tile * Of::kOwnRows, first = of_block + warp() * Of::kWarpRows;
  const float scale = exponent_scale(call), keeps = static_cast<float>(call.kept);
  uint32_t attended = 0;  // the warp's keys
  bool any = false;       // any key of the block
  for (int w = 0; w < kWarps; ++w) {
    const int64_t key = of_block + w * Of::kWarpRows + lane();
    const uint32_t bits = __ballot_sync(~0u, lane() < Of::kWarpRows && head.attended(call, key));
    if (w == warp()) attended = bits;
    any = any || bits != 0;
  }
  const TileRows<Of> of_q(call, head.queries(call), q), of_g(call, head.results(call), d_out);
  const auto load = [&](int64_t member, int64_t query, int stage) {  // of the heads that share the keys
    const uint64_t there = lowest(call.queries - query);
    of_q.load(query, there, qs[stage], member * call.width);
    of_g.load(query, there, gs[stage], member * call.width);
    for (int i = static_cast<int>(threadIdx.x); i < Of::kRows; i += kThreads) {
      const int64_t at = (place.head.number(call) + member) * call.queries + query + i;
      const bool counts = query + i < call.queries;
      of_queries[stage][i] = {counts ? log_sums[at] * kLog2E : INFINITY, counts ? delta[at] : 0};
    }
  };
  const int64_t start = call.first_query(of_block, Of::kRows);
  if (any) load(0, start, 0);
  const OwnRows<Of> own_k(call, keys, k, first, sign_flip(call));
  const OwnRows<Of> own_v(call, keys, v, first, 0);
  typename Of::Sums of_k = {}, of_v = {};

  int stage = 0;
  for (int64_t member = 0, query = start, next_member, next; any && member < call.group;
       member = next_member, query = next, stage ^= 1) {
    next = query + Of::kRows < call.queries ? query + Of::kRows : start;
    next_member = next == start ? member + 1 : member;
    await_copies();
    __syncthreads();  // this tile is loaded; all threads have finished the previous one
    if (next_member < call.group) load(next_member, next, stage ^ 1);
    head.h = place.head.h + member;
    if (attended == 0) continue;
    const int ahead = within_tiles(query + 2 * (lane() % 4) + call.past - first - lane() / 4);
    uint32_t kept[kM] = {};
#pragma unroll
    for (int m = 0; m < kM; ++m)
      if (call.dropped > 0) kept[m] = kept_by_key<kN>(call, head, query, first + 16 * m);
#pragma unroll 1
    for (int n = 0; n < kN; n += 2) {  // sixteen queries
      float s[kM][2][4], dp[kM][2][4];
      multiply_rows<Of>(own_k, qs[stage], 8 * n, s);
      multiply_rows<Of>(own_v, gs[stage], 8 * n, dp);
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
              const bool counts = 16 * m + 8 * r <= 8 * (n + half) + c + ahead;
              if (drops || !counts) probability[c] = 0;
              if (!counts) gradient[c] = 0;
            }
            p[m][2 * half + r] = pack_bf16(probability[0], probability[1]);
            ds[m][2 * half + r] = pack_bf16(gradient[0], gradient[1]);
          }
      }
      add_rows<Of>(p, gs[stage], 8 * n, of_v);
      add_rows<Of>(ds, qs[stage], 8 * n, of_k);
    }
  }
  const auto factor = static_cast<float>(call.scale);
  const auto counts = [&](int m, int r) { return (attended >> (16 * m + lane() / 4 + 8 * r) & 1) != 0; };
  if (dk)
    write_own(call, keys, dk, first, 0, of_k, [&](int m, int r, float x) { return counts(m, r) ? x * factor : 0; });
  if (dv)
    write_own(call, keys, dv, first, 0, of_v, [&](int m, int r, float x) { return counts(m, r) ? x * keeps : 0; });
}

// Calls f with the width to which rows are padded.
template <class F>
void dispatch_width(int64_t width, const F& f) {
  if (width <= 32) f(std::integral_constant<int, 32>());
  else if (width <= 64) f(std::integral_constant<int, 64>());
  else f(std::integral_constant<int, 128>());
}

bf16* data_or_null(const Tensor& x) { return x.defined() ? x.cuda_data<bf16>() : nullptr; }

template <size_t bytes>
bool aligned(const Tensor& x) {
  return !x.defined() || aligned_to<bytes>(x.address());
}

}  // namespace

bool attention_on_tensor_cores(const AttentionTensors& t, const AttentionGradients& d) {
  const int64_t width = t.q.dim(3);
  return t.q.dtype() == DType::bf16 && width % 8 == 0 && width <= 128 && t.stride % 8 == 0 &&
         aligned_to<16>(t.q.address(), t.k.address(), t.v.address(), t.out.address()) &&
         aligned<16>(d.out) && aligned<4>(d.q) && aligned<4>(d.k) && aligned<4>(d.v);  // gradients: written as pairs
}

void attention_forward_mma(Cuda device, const AttentionTensors& t, const AttentionOptions& options) {
  const AttentionView call(t, options);
  dispatch_width(call.width, [&](auto width) {
    if constexpr (width() > 64) {
      attention_forward_parts(device, t, options);
    } else {
      const int64_t tiles = Forward<width()>::tiles(call.queries);
      launch(device, "attention", forward_kernel<width()>, call.batch * call.heads * tiles, kThreads, call, tiles,
             t.q.cuda_data<bf16>(), t.k.cuda_data<bf16>(), t.v.cuda_data<bf16>(), t.out.cuda_data<bf16>(),
             t.log_sums.cuda_data<float>());
    }
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
    launch(device, "attention", delta_kernel<width()>, blocks_for(device, delta.numel() * (width() / 8)), kBlock, call,
           index_count("attention", delta.numel()), out, d_out, delta.cuda_data<float>());
  });
  if (call.width > 32) return attention_backward_parts(device, t, options, d, deltas);
  const int64_t queries = Backward::tiles(call.queries), keys = Backward::tiles(call.keys),
                heads = call.batch * call.heads;
  if (d.q.defined())
    launch(device, "attention", query_gradients_kernel, heads * queries, kThreads, call, queries, q, k, v, d_out,
           log_sums, deltas, d.q.cuda_data<bf16>());
  if (d.k.defined() || d.v.defined())
    launch(device, "attention", key_gradients_kernel, heads / call.group * keys, kThreads, call, keys, q, k, v, d_out,
           log_sums, deltas, data_or_null(d.k), data_or_null(d.v));
}

}  // namespace godwit::detail
