// Each warp keeps the rows that it owns, and their sums, in registers. The other operand is loaded tile by tile through
// shared memory. The next tile is prefetched during the multiplication of the current tile (Dao 2023,
// "FlashAttention-2"). The output registers of one product are the left operand of the next, so scores and
// probabilities are never written to memory.
#include <utility>

#include "autograd/ops/attention/cuda/attention_mma.h"
#include "autograd/ops/attention/cuda/attention_softmax.h"

namespace godwit {
namespace detail {
namespace {

// Tile sizes of a kernel, and its blocks per multiprocessor; the compiler limits registers accordingly.
template <int width, int m, int rows, int blocks>
struct Kernel : Sizes<width, m, rows> {
  static constexpr int kBlocks = blocks;
  using Own = Sizes<width, 1, 64>;  // 64 own rows in shared memory
};

// Widths 64 and 128: the fastest sizes, measured on an H200, that spill no registers, with as many blocks per
// multiprocessor as the registers allow. Width 32 was not measured.
template <int kWidth>
struct Chosen;
template <>
struct Chosen<32> {
  using Forward = Kernel<32, 2, 64, 2>;
  using Queries = Kernel<32, 2, 64, 3>;
  using Keys = Kernel<32, 2, 64, 2>;
  static constexpr int kValueSteps = 2;  // steps of the own values in registers
};
template <>
struct Chosen<64> {
  using Forward = Kernel<64, 1, 64, 4>;
  using Queries = Kernel<64, 1, 64, 4>;
  using Keys = Kernel<64, 1, 64, 3>;
  static constexpr int kValueSteps = 4;
};
template <>
struct Chosen<128> {
  using Forward = Kernel<128, 1, 32, 3>;
  using Queries = Kernel<128, 1, 32, 2>;
  using Keys = Kernel<128, 1, 16, 2>;
  static constexpr int kValueSteps = 0;
};

// The warps of a block own queries; the tiles are keys and values.
template <int kWidth, bool kDrops, class Of = typename Chosen<kWidth>::Forward>
__global__ void __launch_bounds__(kThreads, Of::kBlocks)
    mma_forward_kernel(AttentionView call, int64_t tiles, const bf16* q, const bf16* k, const bf16* v, KeptBits kept,
                       bf16* out, float* log_sums) {
  constexpr int kM = Of::kM, kN = Of::kRows / 8;
  __shared__ KeyTiles<Of, kDrops> keys;
  const AttentionPlace place(call, tiles);
  const AttentionHeadView head = place.head;
  const int of_block = static_cast<int>(place.longest_first(call, tiles)) * Of::kOwnRows;
  const int first = of_block + warp() * Of::kWarpRows;
  keys.start(call, head, of_block, k, v, kept);
  const OwnRows<Of> own(call, head.queries(call), q, first, sign_flip(call));
  Softmax<kM> softmax;
  typename Of::Sums o = {};

  for (int stage = 0; keys.next(call, k, v, kept, stage); stage ^= 1) {
    float s[kM][kN][4], shrunk[kM][2];
    multiply_rows<Of>(own, keys.k[stage], 0, s);
    uint32_t bits[kM][2][kN / 4];
    keys.read_kept(stage, 0, bits);
    mask_scores(call, keys.tiles[stage], first, s);
    uint32_t p[kN / 2][kM][4];
    softmax.template add<kDrops>(call.exponent_scale, s, bits, p, shrunk);
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < Of::kColumns; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) o[m][n][i] *= shrunk[m][i / 2];
#pragma unroll
    for (int n = 0; n < kN / 2; ++n) add_rows<Of>(p[n], keys.v[stage], 16 * n, o);
  }
  float inverse[kM][2];
  const AttentionPlace again(call, tiles, 1, block_index_again());
  const int64_t row = again.longest_first(call, tiles) * Of::kOwnRows + warp() * Of::kWarpRows;
  softmax.finish(call, again.head, row, call.exponent_scale, log_sums, inverse);
  write_own(call, again.head.results(call), out, row, o, [&](int m, int r, float x) { return x * inverse[m][r]; });
}

// Exponent and delta of a query. A head has one entry per query, and a padding entry if the number is odd.
struct alignas(8) Query {
  float exponent, minus_delta;
};
__host__ __device__ inline int64_t even(int64_t queries) { return queries + queries % 2; }

// exponent = log sum · log2 e and delta = Σ d_out · out; kColumns lanes per row, eight elements each.
template <int kWidth>
__global__ void mma_query_kernel(AttentionView call, uint32_t rows, const bf16* out, const bf16* d_out,
                                 const float* log_sums, Query* of_queries) {
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
    if (column == 0 && row < rows) {
      const int64_t number = int64_t{b} * heads + h;
      Query* to = of_queries + number * even(queries) + i;
      to[0] = {log_sums[number * queries + i] * kLog2E, -sum};
      if (i + 1 == queries && queries % 2 != 0) to[1] = {0, 0};
    }
  }
}

// The warps of a block own queries; the tiles are keys and values: dq = scale · Σ ds · k.
template <int kWidth, bool kDrops, class Of = typename Chosen<kWidth>::Queries>
__global__ void __launch_bounds__(kThreads, Of::kBlocks)
    mma_query_gradients_kernel(AttentionView call, int64_t tiles, const bf16* q, const bf16* k, const bf16* v,
                               const bf16* d_out, const Query* of_queries, KeptBits kept, bf16* dq) {
  constexpr int kM = Of::kM, kN = Of::kRows / 8;
  __shared__ KeyTiles<Of, kDrops> keys;
  const AttentionPlace place(call, tiles);
  const AttentionHeadView head = place.head;
  const int of_block = static_cast<int>(place.longest_first(call, tiles)) * Of::kOwnRows;
  const int first = of_block + warp() * Of::kWarpRows;
  keys.start(call, head, of_block, k, v, kept);
  const OwnRows<Of> own_q(call, head.queries(call), q, first, sign_flip(call));
  const OwnRows<Of> own_g(call, head.results(call), d_out, first, 0);
  Query of[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t row = first + 16 * m + lane() / 4 + 8 * r;
      of[m][r] = {0, 0};
      if (row < call.queries) of[m][r] = of_queries[head.number(call) * even(call.queries) + row];
    }
  typename Of::Sums sums = {};

  for (int stage = 0; keys.next(call, k, v, kept, stage); stage ^= 1) {
    const KeyTile tile = keys.tiles[stage];
    const bool all = attend_all<kN>(call, tile, first);
    const auto add = [&](int n) {  // of sixteen keys
      const KeyTile part{tile.first + 8 * n, tile.attended >> 8 * n & 0xFFFF};
      if (!all && (part.attended == 0 || part.first > first + Of::kWarpRows - 1 + call.past)) return;
      float s[kM][2][4], dp[kM][2][4];
      multiply_rows<Of>(own_q, keys.k[stage], 8 * n, s);
      multiply_rows<Of>(own_g, keys.v[stage], 8 * n, dp);
      if (!all) mask_scores(call, part, first, s);
      uint32_t bits[kM][2][1], ds[kM][4];
      keys.read_kept(stage, 8 * n, bits);
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float gradient[2];
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              const float p = exp2_approximate(s[m][half][2 * r + c] * call.exponent_scale - of[m][r].exponent);
              const float of_p = dp[m][half][2 * r + c], minus_delta = of[m][r].minus_delta;
              const bool keep = !kDrops || (bits[m][r][0] >> (8 * half + c) & 1) != 0;
              gradient[c] = p * (!kDrops ? of_p + minus_delta : keep ? of_p * call.keeps + minus_delta : minus_delta);
            }
            ds[m][2 * half + r] = pack_bf16(gradient[0], gradient[1]);
          }
      add_rows<Of>(ds, keys.k[stage], 8 * n, sums);
    };
    // nvcc does not unroll a loop around add().
    [&]<int... i>(std::integer_sequence<int, i...>) { (add(2 * i), ...); }
    (std::make_integer_sequence<int, kN / 2>());
  }
  const auto factor = static_cast<float>(call.scale);
  const AttentionPlace again(call, tiles, 1, block_index_again());
  const int64_t row = again.longest_first(call, tiles) * Of::kOwnRows + warp() * Of::kWarpRows;
  write_own(call, again.head.queries(call), dq, row, sums, [&](int, int, float x) { return x * factor; });
}

// The warps of a block own keys and values; the tiles are queries of all heads that share them: dv = Σ pᵀ · d_out and
// dk = scale · Σ dsᵀ · q.
template <int kWidth, bool kDrops, class Of = typename Chosen<kWidth>::Keys>
__global__ void __launch_bounds__(kThreads, Of::kBlocks)
    mma_key_gradients_kernel(AttentionView call, int64_t tiles, const bf16* q, const bf16* k, const bf16* v,
                             const bf16* d_out, const Query* of_queries, KeptBits kept, bf16* dk, bf16* dv) {
  constexpr int kM = Of::kM, kN = Of::kRows / 8;
  using OwnValues = OwnRows<Of, Chosen<kWidth>::kValueSteps>;
  __shared__ typename OwnValues::Memory memory;
  __shared__ Chunk qs[2][Of::kChunks], gs[2][Of::kChunks];
  __shared__ Chunk of_tile[2][Of::kRows / 2];           // two queries each
  __shared__ Chunk kept_of[2][kDrops ? Of::kRows : 1];  // 128 keys of a query each
  const AttentionPlace place(call, tiles, call.group);
  const AttentionHeadView head = place.head;
  const AttentionRows keys = head.keys(call);
  const int64_t of_block = place.tile * Of::kOwnRows, first = of_block + warp() * Of::kWarpRows;
  // One bit for each of a warp's keys from `key`.
  const auto attended_by = [&](const AttentionHeadView& by, int64_t key) {
    return __ballot_sync(~0u, lane() < Of::kWarpRows && by.attended(call, key + lane()));
  };
  bool any = false, mine = false;  // whether a key of the block, or of the warp, is attended
  for (int w = 0; w < kWarps; ++w) {
    const bool there = attended_by(head, of_block + w * Of::kWarpRows) != 0;
    any = any || there;
    mine = mine || (there && w == warp());
  }
  const TileRows<Of> of_q(call, head.queries(call)), of_g(call, head.results(call));
  const int queries = static_cast<int>(call.queries), group = static_cast<int>(call.group);
  const int number = static_cast<int>(head.number(call));
  const auto load = [&](int member, int query, int stage) {  // member: index among the heads that share the keys
    const int shift = member * static_cast<int>(call.width);
    of_q.load_rows(q, query, queries - query, qs[stage], shift);
    of_g.load_rows(d_out, query, queries - query, gs[stage], shift);
    const int i = static_cast<int>(threadIdx.x);
    if (i < Of::kRows / 2)
      copy_async(of_tile[stage] + i, of_queries + (number + member) * even(call.queries) + query + 2 * i,
                 query + 2 * i < queries);
    if (kDrops && i < Of::kRows)
      copy_async(kept_of[stage] + i, kept.row(call, number + member, query + i) + of_block / 128 * 4,
                 query + i < queries);
  };
  const int start = static_cast<int>(call.first_query(of_block, Of::kRows));
  if (any) load(0, start, 0);
  const OwnRows<Of> own_k(call, keys, k, first, sign_flip(call));
  const OwnValues own_v(call, keys, v, first, 0, of_block, memory);
  typename Of::Sums of_k = {}, of_v = {};

  const int past = !mine ? -1 << 30 : static_cast<int>(call.past - first < 1 << 29 ? call.past - first : 1 << 29);
  for (int stage = 0, member = any ? 0 : group, query = start; member < group; stage ^= 1) {
    int next = query + Of::kRows, next_member = member;
    if (next >= queries) next = start, ++next_member;
    await_copies();
    __syncthreads();  // this tile is loaded; all threads have finished the previous one
    if (next_member < group) load(next_member, next, stage ^ 1);
    const int ahead = query + past;  // last key that the first query attends, relative to the warp's first key
    query = next;
    member = next_member;
    const auto* of_columns = reinterpret_cast<const Query*>(of_tile[stage]) + 2 * (lane() % 4);
    const auto* kept_columns = reinterpret_cast<const uint32_t*>(kept_of[stage] + 2 * (lane() % 4)) + first / 32 % 4;
#pragma unroll 1
    for (int n = 0; n < kN; n += 2) {        // sixteen queries
      if (8 * n + 15 + ahead < 0) continue;  // no query attends a key
      float s[kM][2][4], dp[kM][2][4];
      multiply_rows<Of>(own_k, qs[stage], 8 * n, s);
      if (8 * n + ahead < Of::kWarpRows - 1) {  // some queries do not attend all keys
        const int last = 8 * n + ahead + 2 * (lane() % 4) - lane() / 4;
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              if (16 * m + i / 2 * 8 > 8 * half + i % 2 + last) s[m][half][i] = -INFINITY;
      }
      const auto of_column = [&](int half, int c) { return of_columns[8 * (n + half) + c]; };
      const auto kept_of_column = [&](int half, int c) {
        return kDrops ? kept_columns[4 * (8 * (n + half) + c)] >> (first % 32 + lane() / 4) : ~0u;
      };
      const auto keep = [](uint32_t bits, int m, int r) { return !kDrops || (bits >> (16 * m + 8 * r) & 1) != 0; };
      uint32_t p[kM][4], ds[kM][4];
      multiply_rows<Of>(own_v, gs[stage], 8 * n, dp);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Query of[2] = {of_column(half, 0), of_column(half, 1)};
        const uint32_t bits[2] = {kept_of_column(half, 0), kept_of_column(half, 1)};
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float after[2];
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              float& x = s[m][half][2 * r + c];
              x = exp2_approximate(x * call.exponent_scale - of[c].exponent);
              after[c] = keep(bits[c], m, r) ? x : 0;
            }
            p[m][2 * half + r] = pack_bf16(after[0], after[1]);
          }
      }
      add_rows<Of>(p, gs[stage], 8 * n, of_v);
      // Queries and bits are read again, because registers are scarce.
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Query of[2] = {of_column(half, 0), of_column(half, 1)};
        const uint32_t bits[2] = {kept_of_column(half, 0), kept_of_column(half, 1)};
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float gradient[2];
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              const float of_p = dp[m][half][2 * r + c], minus_delta = of[c].minus_delta;
              gradient[c] = s[m][half][2 * r + c] * (!kDrops               ? of_p + minus_delta
                                                     : keep(bits[c], m, r) ? of_p * call.keeps + minus_delta
                                                                           : minus_delta);
            }
            ds[m][2 * half + r] = pack_bf16(gradient[0], gradient[1]);
          }
      }
      add_rows<Of>(ds, qs[stage], 8 * n, of_k);
    }
  }
  await_copies();  // for the own rows, if there was no tile
  const auto factor = static_cast<float>(call.scale);
  const AttentionPlace again(call, tiles, call.group, block_index_again());
  const AttentionRows rows = again.head.keys(call);
  const int64_t row = again.tile * Of::kOwnRows + warp() * Of::kWarpRows;
  const uint32_t attended = attended_by(again.head, row);
  const auto counts = [&](int m, int r) { return (attended >> (16 * m + lane() / 4 + 8 * r) & 1) != 0; };
  if (dk) write_own(call, rows, dk, row, of_k, [&](int m, int r, float x) { return counts(m, r) ? x * factor : 0; });
  if (dv)
    write_own(call, rows, dv, row, of_v, [&](int m, int r, float x) { return counts(m, r) ? x * call.keeps : 0; });
}

// Calls f with the width to which rows are padded, and with whether there is dropout.
template <class F>
void dispatch(const AttentionView& call, const F& f) {
  const auto of_width = [&](auto width) {
    if (call.dropped > 0) f(width, std::true_type());
    else f(width, std::false_type());
  };
  if (call.width <= 32) of_width(std::integral_constant<int, 32>());
  else if (call.width <= 64) of_width(std::integral_constant<int, 64>());
  else of_width(std::integral_constant<int, 128>());
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
         t.q.dim(1) + t.k.dim(1) < int64_t{1} << 30 &&  // 32-bit indices of queries and keys
         aligned_to<16>(t.q.address(), t.k.address(), t.v.address(), t.out.address()) && aligned<16>(d.out) &&
         aligned<4>(d.q) && aligned<4>(d.k) && aligned<4>(d.v);  // gradients: written as pairs
}

void attention_forward_mma(Cuda device, const AttentionTensors& t, const AttentionOptions& options) {
  const AttentionView call(t, options);
  const Tensor bits = draw_kept(device, t, options, call);
  dispatch(call, [&](auto width, auto drops) {
    using Of = typename Chosen<width()>::Forward;
    const int64_t tiles = Of::tiles(call.queries);
    launch(device, "attention", mma_forward_kernel<width(), drops()>, call.batch * call.heads * tiles, kThreads, call,
           tiles, t.q.cuda_data<bf16>(), t.k.cuda_data<bf16>(), t.v.cuda_data<bf16>(), KeptBits{kept_data(bits)},
           t.out.cuda_data<bf16>(), t.log_sums.cuda_data<float>());
  });
}

void attention_backward_mma(Cuda device, const AttentionTensors& t, const AttentionOptions& options,
                            const AttentionGradients& d) {
  const AttentionView call(t, options);
  const bf16 *q = t.q.cuda_data<bf16>(), *k = t.k.cuda_data<bf16>(), *v = t.v.cuda_data<bf16>();
  const bf16 *out = t.out.cuda_data<bf16>(), *d_out = d.out.cuda_data<bf16>();
  const float* log_sums = t.log_sums.cuda_data<float>();
  const int64_t heads = call.batch * call.heads, rows = heads * call.queries;
  const Tensor queries({heads, even(call.queries), 2}, DType::f32, t.q.device());
  auto* of_queries = reinterpret_cast<Query*>(queries.cuda_data<float>());
  const Tensor bits = t.kept.defined() ? t.kept : draw_kept(device, t, options, call);
  const KeptBits kept{kept_data(bits)};
  dispatch(call, [&](auto width, auto drops) {
    using Of = Chosen<width()>;
    launch(device, "attention", mma_query_kernel<width()>, blocks_for(device, rows * (width() / 8)), kBlock, call,
           index_count("attention", rows), out, d_out, log_sums, of_queries);
    const int64_t of_q = Of::Queries::tiles(call.queries), of_k = Of::Keys::tiles(call.keys);
    if (d.q.defined())
      launch(device, "attention", mma_query_gradients_kernel<width(), drops()>, heads * of_q, kThreads, call, of_q, q,
             k, v, d_out, of_queries, kept, d.q.cuda_data<bf16>());
    if (d.k.defined() || d.v.defined())
      launch(device, "attention", mma_key_gradients_kernel<width(), drops()>, heads / call.group * of_k, kThreads, call,
             of_k, q, k, v, d_out, of_queries, kept, data_or_null(d.k), data_or_null(d.v));
  });
}

}  // namespace detail
}  // namespace godwit
