#include <cmath>
#include <limits>
#include <vector>

#include "autograd/ops/attention/attention_bf16_avx512.h"
#include "autograd/ops/attention/attention_heads.h"
#include "engine/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "autograd/ops/attention/attention_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "autograd/ops/attention/attention_lanes-inl.h"

// Processes one head at a time. The head's rows, which have a stride, are copied to contiguous compute_t.
// Products run over blocks of fixed size that fit in the L2 cache. Masked keys are skipped when rows are copied.
#ifndef GODWIT_ATTENTION_ARGS
#define GODWIT_ATTENTION_ARGS
namespace godwit {
constexpr int64_t kQueryBlock = 96, kKeyBlock = 128;
}
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {

struct Head : AttentionHead {
  explicit Head(const AttentionHead& head) : AttentionHead(head) {}
  template <class T>
  Rows<T> queries(const Tensor& x, int64_t first = 0) const {
    return {queries_of(x.data<T>()) + first * call.query_stride, call.query_stride};
  }
  template <class T>
  Rows<T> results(const Tensor& x, int64_t first = 0) const {
    return {results_of(x.data<T>()) + first * result_stride(), result_stride()};
  }
  template <class T>
  Rows<T> keys(const Tensor& x, int64_t first) const {
    return {keys_of(x.data<T>()), call.key_stride, attended.data() + first};
  }

  // factors[j] for the probability of query i and key first + j: 0 if dropped, otherwise 1/(1 - p).
  template <class C>
  void dropout_factors(int64_t i, int64_t first, int64_t n, std::vector<uint32_t>& words, C* factors) const {
    const uint32_t* word = dropout_words(i, first, n, words);
    const int32_t dropped = call.dropped;
    const auto kept = static_cast<C>(1 / (1 - call.options.dropout));
    for (int64_t j = 0; j < n; ++j) factors[j] = static_cast<int32_t>(word[j] >> 8) < dropped ? C(0) : kept;
  }
};

// Scratch memory of one thread, allocated piece by piece.
template <class C>
class Workspace {
 public:
  Workspace(const std::shared_ptr<Pool>& pool, int64_t elements)
      : buffer_(pool, elements * static_cast<int64_t>(sizeof(C))), next_(reinterpret_cast<C*>(buffer_.data())) {}
  C* take(int64_t elements) { return std::exchange(next_, next_ + elements); }

 private:
  Buffer buffer_;
  C* next_;
};

template <class T, class C = compute_t<T>>
class ForwardHeads {
 public:
  ForwardHeads(const AttentionCall& call, const AttentionTensors& t)
      : call_(call),
        t_(t),
        memory_(call.pool, (call.width + kQueryBlock + 1) * scores_ + (call.keys + 2 * kQueryBlock) * row_) {}

  void run(const Head& head) {
    const int64_t n = head.count(), width = call_.width;
    for (int64_t first = 0; first < n; first += kQueryBlock) {
      const int64_t m = std::min(kQueryBlock, n - first);
      copy_rows(m, width, C(1), head.keys<T>(t_.k, first), row_, o_);
      transpose(m, width, o_, row_, kt_ + first, scores_);
    }
    if (n > 0) copy_rows(n, width, C(1), head.keys<T>(t_.v, 0), row_, v_);
    for (int64_t first = 0; first < call_.queries; first += kQueryBlock) {
      const int64_t m = std::min(kQueryBlock, call_.queries - first);
      if (n > 0) block(head, first, m);
      if (n == 0) std::fill_n(o_, m * row_, C(0)), std::fill_n(inverse_, m, C(0));
      write_rows(
          m, width, [this](int64_t i) { return inverse_[i]; }, o_, row_, head.results<T>(t_.out, first));
    }
  }

 private:
  // o = exp(scores - largest) · v and inverse = 1/Σ exp(scores - largest), for m queries from `first` on. Scores of
  // keys that a query does not attend become -infinity.
  void block(const Head& head, int64_t first, int64_t m) {
    const int64_t n = head.seen(first + m - 1), width = call_.width, columns = padded_columns<C>(n);
    C* log_sums = head.sums<C>(t_.log_sums) + first;
    copy_rows(m, width, static_cast<C>(call_.scale), head.queries<T>(t_.q, first), row_, q_);
    product<false>(m, columns, width, q_, row_, kt_, scores_, p_, scores_, false);
    for (int64_t i = 0; i < m; ++i) {
      C* row = p_ + i * scores_;
      const int64_t seen = head.seen(first + i);
      std::fill(row + seen, row + columns, -std::numeric_limits<C>::infinity());
      const auto [largest, sum] = exp_of_differences(row, columns);
      log_sums[i] = largest + std::log(sum);
      inverse_[i] = C(1) / sum;
      if (call_.options.dropout == 0) continue;
      head.dropout_factors(first + i, 0, seen, words_, factors_);
      multiply(seen, factors_, row);
    }
    product<false>(m, padded_columns<C>(width), n, p_, scores_, v_, row_, o_, row_, false);
  }

  const AttentionCall& call_;
  const AttentionTensors& t_;
  const int64_t row_ = row_stride<C>(call_.width), scores_ = row_stride<C>(call_.keys);
  Workspace<C> memory_;
  C *kt_ = memory_.take(call_.width * scores_), *v_ = memory_.take(call_.keys * row_);  // kᵀ [width, keys], v
  C *q_ = memory_.take(kQueryBlock * row_), *o_ = memory_.take(kQueryBlock * row_);
  C *p_ = memory_.take(kQueryBlock * scores_), *factors_ = memory_.take(scores_), inverse_[kQueryBlock];
  std::vector<uint32_t> words_;
};

template <class T, class C = compute_t<T>>
class BackwardHeads {
 public:
  BackwardHeads(const AttentionCall& call, const AttentionTensors& t, const AttentionGradients& gradients)
      : call_(call),
        t_(t),
        d_(gradients),
        memory_(call.pool, 3 * call.queries * row_ + call.queries + (kKeyBlock + 2 * summed_) * row_ +
                               (2 * call.width + 2 * kQueryBlock + 1) * scores_) {}

  // The heads that share keys and values run in order. Their gradients of k and v are summed; the last head writes
  // them.
  void run(const Head& head) {
    const int64_t n = head.count(), queries = call_.queries, width = call_.width;
    copy_rows(queries, width, static_cast<C>(call_.scale), head.queries<T>(t_.q), row_, q_);
    copy_rows(queries, width, C(1), head.results<T>(d_.out), row_, g_);
    const Rows<T> out = head.results<T>(t_.out);
    for (int64_t i = 0; i < queries; ++i) {
      if (i + kAhead < queries) prefetch(width, out(i + kAhead));
      delta_[i] = dot(width, g_ + i * row_, out(i));
    }
    if (n < call_.keys) clear_masked(head);
    if (n == 0) std::fill_n(d_q_, queries * row_, C(0));
    for (int64_t first = 0; first < n; first += kKeyBlock) block(head, first, std::min(kKeyBlock, n - first));
    write(queries, static_cast<C>(call_.scale), d_q_, d_.q, [&](const Tensor& x) { return head.queries<T>(x); });
  }

 private:
  void clear_masked(const Head& head) {
    for (const Tensor& gradient : {d_.k, d_.v})
      for (int64_t j = 0; gradient.defined() && j < call_.keys; ++j)
        std::fill_n(head.keys_of(gradient.data<T>()) + j * call_.key_stride, call_.width, T(C(0)));
  }

  // Computes the gradients of n keys from `first` on, and adds their contribution to dq.
  void block(const Head& head, int64_t first, int64_t n) {
    const int64_t width = call_.width, columns = padded_columns<C>(n), across = padded_columns<C>(width);
    copy_rows(n, width, C(1), head.keys<T>(t_.v, first), row_, k_);
    transpose(n, width, k_, row_, vt_, scores_);
    copy_rows(n, width, C(1), head.keys<T>(t_.k, first), row_, k_);
    transpose(n, width, k_, row_, kt_, scores_);
    const int64_t start = head.first_query(first, kQueryBlock), shift = call_.group() > 1 ? first * row_ : 0;
    C *d_k = d_k_ + shift, *d_v = d_v_ + shift;
    for (int64_t i = start; i < call_.queries; i += kQueryBlock) {
      const int64_t m = std::min(kQueryBlock, call_.queries - i);
      const C *q = q_ + i * row_, *g = g_ + i * row_;
      product<false>(m, columns, width, q, row_, kt_, scores_, p_, scores_, false);
      product<false>(m, columns, width, g, row_, vt_, scores_, ds_, scores_, false);
      for (int64_t r = 0; r < m; ++r) probabilities(head, i + r, first, n, p_ + r * scores_, ds_ + r * scores_);
      const bool add = i > start || head.member() > 0;
      product<true>(n, across, m, p_, scores_, g, row_, d_v, row_, add);
      product<true>(n, across, m, ds_, scores_, q, row_, d_k, row_, add);
      product<false>(m, across, n, ds_, scores_, k_, row_, d_q_ + i * row_, row_, first > 0);
    }
    if (head.member() < call_.group() - 1) return;
    write(n, C(1), d_k, d_.k, [&](const Tensor& x) { return head.keys<T>(x, first); });
    write(n, C(1), d_v, d_.v, [&](const Tensor& x) { return head.keys<T>(x, first); });
  }

  template <class RowsOf>
  void write(int64_t n, C scale, const C* from, const Tensor& to, const RowsOf& rows_of) {
    if (to.defined())
      write_rows(
          n, call_.width, [scale](int64_t) { return scale; }, from, row_, rows_of(to));
  }

  // For query i: p becomes the probabilities after dropout, ds the score gradients.
  void probabilities(const Head& head, int64_t i, int64_t first, int64_t n, C* p, C* ds) {
    const C log_sum = head.sums<C>(t_.log_sums)[i];
    const bool drops = call_.options.dropout > 0;
    if (drops) {
      head.dropout_factors(i, first, n, words_, factors_);
      multiply(n, factors_, ds);
    }
    score_gradient(n, log_sum, delta_[i], p, ds);
    if (drops) multiply(n, factors_, p);
    const int64_t seen = head.seen_of(i, first, n);
    std::fill(p + seen, p + n, C(0)), std::fill(ds + seen, ds + n, C(0));
  }

  const AttentionCall& call_;
  const AttentionTensors& t_;
  const AttentionGradients& d_;
  const int64_t row_ = row_stride<C>(call_.width), scores_ = row_stride<C>(kKeyBlock);
  const int64_t summed_ = call_.group() > 1 ? call_.keys : kKeyBlock;  // keys whose gradients are in memory
  Workspace<C> memory_;
  // q_, g_, d_q_ and delta_ hold all queries; delta = Σ d_out · out.
  C *q_ = memory_.take(call_.queries * row_), *g_ = memory_.take(call_.queries * row_);
  C *d_q_ = memory_.take(call_.queries * row_), *delta_ = memory_.take(call_.queries);
  C *k_ = memory_.take(kKeyBlock * row_), *d_k_ = memory_.take(summed_ * row_), *d_v_ = memory_.take(summed_ * row_);
  C *kt_ = memory_.take(call_.width * scores_), *vt_ = memory_.take(call_.width * scores_);  // [width, keys]
  C *p_ = memory_.take(kQueryBlock * scores_), *ds_ = memory_.take(kQueryBlock * scores_);
  C* factors_ = memory_.take(scores_);
  std::vector<uint32_t> words_;
};

void forward(const AttentionCall& call, const AttentionTensors& t, int64_t begin, int64_t end) {
  dispatch_float(t.q.dtype(), "attention", [&]<class T>() {
    ForwardHeads<T> heads(call, t);
    for_heads(call, 1, begin, end, [&](const AttentionHead& head) { heads.run(Head(head)); });
  });
}

void backward(const AttentionCall& call, const AttentionTensors& t, const AttentionGradients& d, int64_t begin,
              int64_t end) {
  dispatch_float(t.q.dtype(), "attention", [&]<class T>() {
    BackwardHeads<T> heads(call, t, d);
    for_heads(call, call.group(), begin, end, [&](const AttentionHead& head) { heads.run(Head(head)); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void attention_forward(Cpu, const AttentionTensors& t, const AttentionOptions& options) {
  const AttentionCall call(t, options);
  const bool pairs = t.q.dtype() == DType::bf16 && detail::attention_bf16_avx512();
  parallel_for(call.batch * call.heads, call.grain(1), [&](int64_t begin, int64_t end) {
    if (pairs) detail::attention_forward_avx512(call, t, begin, end);
    else HWY_DYNAMIC_DISPATCH(forward)(call, t, begin, end);
  });
}

void attention_backward(Cpu, const AttentionTensors& t, const AttentionOptions& options,
                        const AttentionGradients& gradients) {
  const AttentionCall call(t, options);
  const bool pairs = t.q.dtype() == DType::bf16 && detail::attention_bf16_avx512();
  parallel_for(call.batch * call.kv_heads, call.grain(call.group()), [&](int64_t begin, int64_t end) {
    if (pairs) detail::attention_backward_avx512(call, t, gradients, begin, end);
    else HWY_DYNAMIC_DISPATCH(backward)(call, t, gradients, begin, end);
  });
}

}  // namespace godwit
#endif
