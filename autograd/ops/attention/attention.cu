// Attention in float32 or float64, and all cases that attention_mma.cu does not support. The kernels process tiles of
// queries and keys in shared memory. The softmax is computed online over the tiles of keys (Milakov and Gimelshein
// 2018), so that only one tile of scores exists at a time.
#include <cmath>
#include <limits>

#include "autograd/ops/attention/attention.h"
#include "autograd/ops/attention/cuda/attention_call.h"
#include "autograd/ops/attention/cuda/attention_mma.h"
#include "engine/cuda/reduce.h"
#include "engine/tensor.h"

namespace godwit {
namespace {

__device__ inline float exp2_of(float x) { return exp2f(x); }
__device__ inline double exp2_of(double x) { return exp2(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }

constexpr double kLog2E = 1.44269504088896340736, kLn2 = 0.693147180559945309417;

// Tiles of kRows queries and kRows keys, kWidth wide, in compute_t. A block has kSide² threads. Thread (y, x) computes
// rows y + kSide · r and columns x + kSide · c of a tile's scores and of the sums over tiles.
template <class T, int kWidth>
struct Tiles {
  using C = compute_t<T>;
  static constexpr int kRows = kWidth <= 64 ? 128 / sizeof(C) : 64 / sizeof(C);
  static constexpr int kSide = kRows < 16 ? kRows : 16, kThreads = kSide * kSide;
  static constexpr int kPer = kRows / kSide, kColumns = kWidth / kSide;
  static constexpr int kRow = kWidth + 1, kScores = kRows + 1;  // odd, so that columns use all banks
  static int64_t count(int64_t length) { return (length + kRows - 1) / kRows; }

  static __device__ int y() { return static_cast<int>(threadIdx.x) / kSide; }
  static __device__ int x() { return static_cast<int>(threadIdx.x) % kSide; }

  // to [kRows, kRow] = rows [first, first + kRows) of the head; 0 beyond the length or the width, and for masked keys.
  template <class Counts>
  static __device__ void load(const AttentionView& call, const AttentionRows& rows, const T* from, int64_t first, C* to,
                              const Counts& counts) {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kWidth; i += kThreads) {
      const int row = i / kWidth, column = i % kWidth;
      const bool there = column < call.width && counts(first + row);
      to[row * kRow + column] = there ? C(rows.row(from, first + row)[column]) : C(0);
    }
  }

  // sums[r][c] = row y + kSide · r of a, dot product with row x + kSide · c of b.
  static __device__ void scores(const C* a, const C* b, C (&sums)[kPer][kPer]) {
    for (int r = 0; r < kPer; ++r)
      for (int c = 0; c < kPer; ++c) sums[r][c] = 0;
#pragma unroll 8
    for (int k = 0; k < kWidth; ++k) {
      C left[kPer], right[kPer];
      for (int r = 0; r < kPer; ++r) left[r] = a[(y() + kSide * r) * kRow + k];
      for (int c = 0; c < kPer; ++c) right[c] = b[(x() + kSide * c) * kRow + k];
      for (int r = 0; r < kPer; ++r)
        for (int c = 0; c < kPer; ++c) sums[r][c] += left[r] * right[c];
    }
  }

  // sums[r][c] += Σ_k p(y + kSide · r, k) · b(k, x + kSide · c), over the tile.
  template <class P>
  static __device__ void add_product(const P& p, const C* b, C (&sums)[kPer][kColumns]) {
#pragma unroll 4
    for (int k = 0; k < kRows; ++k) {
      C left[kPer], right[kColumns];
      for (int r = 0; r < kPer; ++r) left[r] = p(y() + kSide * r, k);
      for (int c = 0; c < kColumns; ++c) right[c] = b[k * kRow + x() + kSide * c];
      for (int r = 0; r < kPer; ++r)
        for (int c = 0; c < kColumns; ++c) sums[r][c] += left[r] * right[c];
    }
  }

  // to [kRows, kScores] = call.kept, or 0 where dropout drops the probability of a query and a key.
  static __device__ void factors(const AttentionView& call, const AttentionHeadView& head, int64_t first_query,
                                 int64_t first_key, C* to) {
    // kQuads quads of each row; if rows may begin within a quad, also the quad in which each row ends.
    constexpr int kQuads = kRows / 4, kAll = kRows * kQuads;
    const int count = call.keys % 4 == 0 ? kAll : kAll + kRows;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
      const int row = i < kAll ? i / kQuads : i - kAll, quad = i < kAll ? i % kQuads : kQuads;
      const int64_t first = (head.number(call) * call.queries + first_query + row) * call.keys + first_key;
      const uint32_t kept = kept_of_quad(call, static_cast<uint32_t>(first >> 2) + quad);
      for (int k = 0; k < 4; ++k) {
        const int column = 4 * quad + k - static_cast<int>(first & 3);
        if (column >= 0 && column < kRows) to[row * kScores + column] = (kept >> k & 1) != 0 ? C(call.kept) : C(0);
      }
    }
  }

  // Whether any key of the tile is attended; the same result in all threads.
  static __device__ bool any(const AttentionView& call, const AttentionHeadView& head, int64_t first) {
    if (call.mask == nullptr) return true;
    for (int64_t j = first; j < first + kRows && j < call.keys; ++j)
      if (call.mask[head.b * call.keys + j] != 0) return true;
    return false;
  }

  // Reduces with op over the threads that share a row of scores.
  template <class Op>
  static __device__ C across(C value, Op op) {
    for (int mask = kSide / 2; mask > 0; mask /= 2) value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, mask));
    return value;
  }

  static __device__ void write(const AttentionView& call, const AttentionRows& rows, T* to, int64_t first,
                               const C (&sums)[kPer][kColumns], const C (&scale)[kPer]) {
    for (int r = 0; r < kPer; ++r) {
      const int64_t row = first + y() + kSide * r;
      if (row >= rows.length) continue;
      T* at = rows.row(to, row);
      for (int c = 0; c < kColumns; ++c)
        if (x() + kSide * c < call.width) at[x() + kSide * c] = static_cast<T>(sums[r][c] * scale[r]);
    }
  }
};

// One block per tile of queries; o, largest and sum are updated for each tile of keys.
template <class T, int kWidth>
__global__ void __launch_bounds__(Tiles<T, kWidth>::kThreads, 2)
    attention_forward_kernel(AttentionView call, int64_t tiles, const T* q, const T* k, const T* v, T* out,
                             compute_t<T>* log_sums) {
  using Of = Tiles<T, kWidth>;
  using C = compute_t<T>;
  constexpr int kPer = Of::kPer, kSide = Of::kSide, kRows = Of::kRows;
  __shared__ C qs[kRows * Of::kRow], ks[kRows * Of::kRow], vs[kRows * Of::kRow], ps[kRows * Of::kScores];
  const AttentionPlace place(call, tiles);
  const AttentionHeadView head = place.head;
  const int64_t first = place.tile * kRows;
  const auto attended = [&](int64_t j) { return head.attended(call, j); };
  const C scale = static_cast<C>(call.scale * kLog2E);
  C largest[kPer], sum[kPer], o[kPer][Of::kColumns] = {};
  for (int r = 0; r < kPer; ++r) largest[r] = -std::numeric_limits<C>::infinity(), sum[r] = 0;

  Of::load(call, head.queries(call), q, first, qs, [&](int64_t i) { return i < call.queries; });
  for (int64_t key = 0; key < call.keys_end(first + kRows - 1); key += kRows) {
    if (!Of::any(call, head, key)) continue;
    __syncthreads();  // until all threads have read the previous tile
    Of::load(call, head.keys(call), k, key, ks, attended);
    Of::load(call, head.keys(call), v, key, vs, attended);
    if (call.dropped > 0) Of::factors(call, head, first, key, ps);
    __syncthreads();
    C s[kPer][kPer];
    Of::scores(qs, ks, s);
    for (int r = 0; r < kPer; ++r) {
      C most = largest[r];
      for (int c = 0; c < kPer; ++c) {
        const int64_t j = key + Of::x() + kSide * c;
        const bool counts = attended(j) && j <= first + Of::y() + kSide * r + call.past;
        s[r][c] = counts ? s[r][c] * scale : -std::numeric_limits<C>::infinity();
        most = Larger()(most, s[r][c]);
      }
      most = Of::across(most, Larger());
      const C shrunk = exp2_of(largest[r] - most);
      largest[r] = most;
      sum[r] *= shrunk;
      for (C& element : o[r]) element *= shrunk;
      C added = 0;
      for (int c = 0; c < kPer; ++c) {
        const C p = exp2_of(s[r][c] - most);
        added += p;
        C& at = ps[(Of::y() + kSide * r) * Of::kScores + Of::x() + kSide * c];
        at = call.dropped > 0 ? p * at : p;
      }
      sum[r] += Of::across(added, Plus());
    }
    __syncthreads();
    Of::add_product([&](int row, int j) { return ps[row * Of::kScores + j]; }, vs, o);
  }
  C inverse[kPer];
  for (int r = 0; r < kPer; ++r) {
    const int64_t row = first + Of::y() + kSide * r;
    inverse[r] = sum[r] == 0 ? C(0) : C(1) / sum[r];
    if (Of::x() == 0 && row < call.queries)
      log_sums[head.number(call) * call.queries + row] = largest[r] * static_cast<C>(kLn2) + log_of(sum[r]);
  }
  Of::write(call, head.results(call), out, first, o, inverse);
}

// delta [batch, heads, queries] = Σ d_out · out; one warp per query.
template <class T, class C = compute_t<T>>
__global__ void attention_delta_kernel(AttentionView call, uint32_t rows, const T* out, const T* d_out, C* delta) {
  const uint32_t step = grid_threads32() / 32, queries = static_cast<uint32_t>(call.queries);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (uint32_t i = grid_thread32() / 32; i < rows; i += step) {
    const uint32_t number = i / queries, query = i - number * queries;
    const AttentionHeadView head(call, number);
    const AttentionRows of_head = head.results(call);
    const T *a = of_head.row(out, query), *b = of_head.row(d_out, query);
    C sum = 0;
    for (int64_t c = lane; c < call.width; c += 32) sum += C(a[c]) * C(b[c]);
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, mask);
    if (lane == 0) delta[i] = sum;
  }
}

// For one tile of queries and one of keys: p [kRows, kScores] becomes the probabilities after dropout, ds the gradients
// of the scaled scores; both are 0 for queries or keys that are masked or out of range. On input, ps contains the
// dropout factors.
template <class T, int kWidth, class C = compute_t<T>>
__device__ void tile_gradients(const AttentionView& call, const AttentionHeadView& head, int64_t query, int64_t key,
                               const C* qs, const C* gs, const C* ks, const C* vs, const C* log_sums, const C* delta,
                               C* ps, C* ds) {
  using Of = Tiles<T, kWidth>;
  constexpr int kPer = Of::kPer, kSide = Of::kSide;
  C s[kPer][kPer], dp[kPer][kPer];
  Of::scores(qs, ks, s);
  Of::scores(gs, vs, dp);
  for (int r = 0; r < kPer; ++r) {
    const int row = Of::y() + kSide * r;
    const bool there = query + row < call.queries;
    const int64_t of_row = head.number(call) * call.queries + query + row;
    const C log_sum = there ? log_sums[of_row] : C(0), shift = there ? delta[of_row] : C(0);
    for (int c = 0; c < kPer; ++c) {
      const int column = Of::x() + kSide * c;
      const bool counts = there && head.attended(call, key + column) && key + column <= query + row + call.past;
      C& at = ps[row * Of::kScores + column];
      const C factor = call.dropped > 0 ? at : C(1);
      const C p = exp2_of((s[r][c] * static_cast<C>(call.scale) - log_sum) * static_cast<C>(kLog2E));
      at = counts ? p * factor : C(0);
      ds[row * Of::kScores + column] = counts ? p * (dp[r][c] * factor - shift) : C(0);
    }
  }
}

// One block per tile of queries: dq = scale · Σ ds · k, over the tiles of keys.
template <class T, int kWidth>
__global__ void __launch_bounds__(Tiles<T, kWidth>::kThreads, 2)
    attention_query_gradients_kernel(AttentionView call, int64_t tiles, const T* q, const T* k, const T* v,
                                     const T* d_out, const compute_t<T>* log_sums, const compute_t<T>* delta, T* dq) {
  using Of = Tiles<T, kWidth>;
  using C = compute_t<T>;
  constexpr int kRows = Of::kRows;
  __shared__ C qs[kRows * Of::kRow], gs[kRows * Of::kRow], ks[kRows * Of::kRow], vs[kRows * Of::kRow];
  __shared__ C ps[kRows * Of::kScores], ds[kRows * Of::kScores];
  const AttentionPlace place(call, tiles);
  const AttentionHeadView head = place.head;
  const int64_t first = place.tile * kRows;
  const auto there = [&](int64_t i) { return i < call.queries; };
  const auto attended = [&](int64_t j) { return head.attended(call, j); };
  C sums[Of::kPer][Of::kColumns] = {}, scale[Of::kPer];
  for (C& element : scale) element = static_cast<C>(call.scale);

  Of::load(call, head.queries(call), q, first, qs, there);
  Of::load(call, head.results(call), d_out, first, gs, there);
  for (int64_t key = 0; key < call.keys_end(first + kRows - 1); key += kRows) {
    if (!Of::any(call, head, key)) continue;
    __syncthreads();
    Of::load(call, head.keys(call), k, key, ks, attended);
    Of::load(call, head.keys(call), v, key, vs, attended);
    if (call.dropped > 0) Of::factors(call, head, first, key, ps);
    __syncthreads();
    tile_gradients<T, kWidth>(call, head, first, key, qs, gs, ks, vs, log_sums, delta, ps, ds);
    __syncthreads();
    Of::add_product([&](int row, int j) { return ds[row * Of::kScores + j]; }, ks, sums);
  }
  Of::write(call, head.queries(call), dq, first, sums, scale);
}

// One block per tile of keys: dv = Σ pᵀ · d_out and dk = scale · Σ dsᵀ · q, over the tiles of queries of all heads that
// share the keys.
template <class T, int kWidth>
__global__ void __launch_bounds__(Tiles<T, kWidth>::kThreads, 2)
    attention_key_gradients_kernel(AttentionView call, int64_t tiles, const T* q, const T* k, const T* v,
                                   const T* d_out, const compute_t<T>* log_sums, const compute_t<T>* delta, T* dk,
                                   T* dv) {
  using Of = Tiles<T, kWidth>;
  using C = compute_t<T>;
  constexpr int kRows = Of::kRows;
  __shared__ C qs[kRows * Of::kRow], gs[kRows * Of::kRow], ks[kRows * Of::kRow], vs[kRows * Of::kRow];
  __shared__ C ps[kRows * Of::kScores], ds[kRows * Of::kScores];
  const AttentionPlace place(call, tiles, call.group);
  AttentionHeadView head = place.head;
  const AttentionRows keys = head.keys(call);
  const int64_t first = place.tile * kRows;
  const auto there = [&](int64_t i) { return i < call.queries; };
  const auto attended = [&](int64_t j) { return head.attended(call, j); };
  C of_k[Of::kPer][Of::kColumns] = {}, of_v[Of::kPer][Of::kColumns] = {};

  if (Of::any(call, head, first)) {
    Of::load(call, keys, k, first, ks, attended);
    Of::load(call, keys, v, first, vs, attended);
    for (const int64_t end = head.h + call.group; head.h < end; ++head.h)
      for (int64_t query = call.first_query(first, kRows); query < call.queries; query += kRows) {
        __syncthreads();
        Of::load(call, head.queries(call), q, query, qs, there);
        Of::load(call, head.results(call), d_out, query, gs, there);
        if (call.dropped > 0) Of::factors(call, head, query, first, ps);
        __syncthreads();
        tile_gradients<T, kWidth>(call, head, query, first, qs, gs, ks, vs, log_sums, delta, ps, ds);
        __syncthreads();
        Of::add_product([&](int row, int i) { return ps[i * Of::kScores + row]; }, gs, of_v);
        Of::add_product([&](int row, int i) { return ds[i * Of::kScores + row]; }, qs, of_k);
      }
  }
  C scale[Of::kPer], one[Of::kPer];
  for (int r = 0; r < Of::kPer; ++r) {
    const bool counts = attended(first + Of::y() + Of::kSide * r);
    scale[r] = static_cast<C>(call.scale), one[r] = 1;
    for (int c = 0; c < Of::kColumns && !counts; ++c)
      of_k[r][c] = 0, of_v[r][c] = 0;  // discards products with NaN or infinity
  }
  if (dk) Of::write(call, keys, dk, first, of_k, scale);
  if (dv) Of::write(call, keys, dv, first, of_v, one);
}

// Calls f with the width to which rows are padded.
template <class F>
void dispatch_width(const AttentionTensors& t, const F& f) {
  const int64_t width = t.q.dim(3);
  check(width <= 128, "attention: on a GPU head_dim must be at most 128, q is ", t.q.shape(),
        "; use more heads, or the CPU");
  if (width <= 32) f(std::integral_constant<int, 32>());
  else if (width <= 64) f(std::integral_constant<int, 64>());
  else f(std::integral_constant<int, 128>());
}

template <class T>
T* data_or_null(const Tensor& x) {
  return x.defined() ? x.cuda_data<T>() : nullptr;
}

}  // namespace

void attention_forward(Cuda device, const AttentionTensors& t, const AttentionOptions& options) {
  if (detail::attention_on_tensor_cores(t, {})) return detail::attention_forward_mma(device, t, options);
  const AttentionView call(t, options);
  dispatch_float(t.q.dtype(), "attention", [&]<class T>() {
    dispatch_width(t, [&](auto width) {
      using Of = Tiles<T, width()>;
      const int64_t tiles = Of::count(call.queries);
      launch(device, "attention", attention_forward_kernel<T, width()>, call.batch * call.heads * tiles, Of::kThreads,
             call, tiles, t.q.cuda_data<T>(), t.k.cuda_data<T>(), t.v.cuda_data<T>(), t.out.cuda_data<T>(),
             t.log_sums.cuda_data<compute_t<T>>());
    });
  });
}

void attention_backward(Cuda device, const AttentionTensors& t, const AttentionOptions& options,
                        const AttentionGradients& d) {
  if (detail::attention_on_tensor_cores(t, d)) return detail::attention_backward_mma(device, t, options, d);
  const AttentionView call(t, options);
  const Tensor delta(t.log_sums.shape(), t.log_sums.dtype(), t.q.device());
  dispatch_float(t.q.dtype(), "attention", [&]<class T>() {
    using C = compute_t<T>;
    const T *q = t.q.cuda_data<T>(), *k = t.k.cuda_data<T>(), *v = t.v.cuda_data<T>(), *d_out = d.out.cuda_data<T>();
    const C* log_sums = t.log_sums.cuda_data<C>();
    launch(device, "attention", attention_delta_kernel<T>, blocks_for(device, delta.numel() * 32), kBlock, call,
           index_count("attention", delta.numel()), t.out.cuda_data<T>(), d_out, delta.cuda_data<C>());
    dispatch_width(t, [&](auto width) {
      using Of = Tiles<T, width()>;
      const int64_t queries = Of::count(call.queries), keys = Of::count(call.keys), heads = call.batch * call.heads;
      if (d.q.defined())
        launch(device, "attention", attention_query_gradients_kernel<T, width()>, heads * queries, Of::kThreads, call,
               queries, q, k, v, d_out, log_sums, delta.cuda_data<C>(), d.q.cuda_data<T>());
      if (d.k.defined() || d.v.defined())
        launch(device, "attention", attention_key_gradients_kernel<T, width()>, heads / call.group * keys, Of::kThreads,
               call, keys, q, k, v, d_out, log_sums, delta.cuda_data<C>(), data_or_null<T>(d.k), data_or_null<T>(d.v));
    });
  });
}

}  // namespace godwit
