#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "autograd/ops/attention.h"
#include "engine/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "autograd/ops/attention_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "autograd/ops/attention_lanes-inl.h"

// One head at a time: its rows, which lie heads·width apart, are copied together as compute_t, the products run over
// blocks of fixed size that stay in the second-level cache. Masked keys are left out when their rows are copied.
#ifndef GODWIT_ATTENTION_ARGS
#define GODWIT_ATTENTION_ARGS
namespace godwit {

constexpr int64_t kQueryBlock = 64, kKeyBlock = 128;

// What all heads of a call share.
struct AttentionCall {
  int64_t batch, queries, keys, heads, width;
  double scale;
  const AttentionOptions& options;
  std::vector<std::vector<int32_t>> attended;  // per batch entry: the keys that are not masked
  std::shared_ptr<Pool> pool;
  int64_t grain() const { return std::max<int64_t>(1, (1 << 18) / (queries * keys * width)); }  // heads

  AttentionCall(const AttentionTensors& t, const AttentionOptions& o)
      : batch(t.q.dim(0)),
        queries(t.q.dim(1)),
        keys(t.k.dim(1)),
        heads(t.q.dim(2)),
        width(t.q.dim(3)),
        scale(o.scale.value_or(1 / std::sqrt(static_cast<double>(width)))),
        options(o),
        attended(static_cast<size_t>(batch)),
        pool(context().pool) {
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t j = 0; j < keys; ++j)
        if (!t.mask.defined() || t.mask.data<uint8_t>()[b * keys + j] != 0)
          attended[static_cast<size_t>(b)].push_back(static_cast<int32_t>(j));
  }
};

}  // namespace godwit
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {

// One head of one batch entry.
struct Head {
  const AttentionCall& call;
  int64_t b, h;
  const std::vector<int32_t>& attended;

  // Heads follow one another within all batch entries, so that threads share the long ones and the short ones alike.
  Head(const AttentionCall& c, int64_t unit)
      : call(c), b(unit % c.batch), h(unit / c.batch), attended(c.attended[static_cast<size_t>(b)]) {}
  int64_t count() const { return static_cast<int64_t>(attended.size()); }
  int64_t row_of(int64_t row, int64_t length) const { return ((b * length + row) * call.heads + h) * call.width; }

  template <class T>
  auto query(const Tensor& x) const {
    return [this, data = x.data<T>()](int64_t i) { return data + row_of(i, call.queries); };
  }
  template <class T>
  auto key(const Tensor& x, int64_t first) const {
    return [this, first, data = x.data<T>()](int64_t j) {
      return data + row_of(attended[static_cast<size_t>(first + j)], call.keys);
    };
  }
  template <class C>
  C* sums(const Tensor& log_sums) const {
    return log_sums.data<C>() + (b * call.heads + h) * call.queries;
  }

  // factors[j] of the probability of query i for key first + j: 0 where it is dropped, 1/(1 - p) else.
  template <class C>
  void dropout_factors(int64_t i, int64_t first, int64_t n, std::vector<uint32_t>& words, C* factors) const {
    const int32_t* key = attended.data() + first;
    const int64_t row = ((b * call.heads + h) * call.queries + i) * call.keys, begin = row + key[0], from = begin & ~3;
    const int64_t end = row + key[n - 1] + 1, skipped = begin - from;
    words.resize(static_cast<size_t>((end - from + 3) / 4 * 4));
    const DropoutKey& k = call.options.key;
    for (int64_t at = from; at < end; at += 4) {
      const auto four = philox4x32({static_cast<uint32_t>(at >> 2), k.step, k.purpose(), k.sender},
                                   {static_cast<uint32_t>(k.seed), static_cast<uint32_t>(k.seed >> 32)});
      std::copy_n(four.begin(), 4, words.begin() + (at - from));
    }
    const auto below = static_cast<int32_t>(std::ceil(call.options.dropout * 0x1p24));
    const auto kept = static_cast<C>(1 / (1 - call.options.dropout));
    for (int64_t j = 0; j < n; ++j) {
      const uint32_t word = words[static_cast<size_t>(skipped + key[j] - key[0])];
      factors[j] = static_cast<int32_t>(word >> 8) < below ? C(0) : kept;
    }
  }
};

// Memory of one thread, handed out piece by piece.
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
void forward_heads(const AttentionCall& call, const AttentionTensors& t, int64_t begin, int64_t end) {
  const int64_t padded = padded_columns<C>(call.width), distance = row_distance<C>(call.keys);
  Workspace<C> memory(call.pool, (call.width + kQueryBlock + 1) * distance + (call.keys + 2 * kQueryBlock) * padded);
  C *kt = memory.take(call.width * distance), *v = memory.take(call.keys * padded);
  C *q = memory.take(kQueryBlock * padded), *o = memory.take(kQueryBlock * padded);
  C *p = memory.take(kQueryBlock * distance), *factors = memory.take(distance), inverse[kQueryBlock];
  std::vector<uint32_t> words;
  for (int64_t unit = begin; unit < end; ++unit) {
    const Head head(call, unit);
    const int64_t n = head.count(), columns = padded_columns<C>(n);
    if (n == 0) {
      for (int64_t i = 0; i < call.queries; ++i) std::fill_n(head.query<T>(t.out)(i), call.width, T(C(0)));
      continue;
    }
    copy_transposed(n, call.width, head.key<T>(t.k, 0), distance, kt);
    copy_rows(n, call.width, C(1), head.key<T>(t.v, 0), padded, v);
    for (int64_t first = 0; first < call.queries; first += kQueryBlock) {
      const int64_t m = std::min(kQueryBlock, call.queries - first);
      const auto query = [&](const Tensor& x) {
        return [rows = head.query<T>(x), first](int64_t i) { return rows(first + i); };
      };
      copy_rows(m, call.width, static_cast<C>(call.scale), query(t.q), padded, q);
      product<false>(m, columns, call.width, q, padded, kt, distance, p, distance, false);
      for (int64_t i = 0; i < m; ++i) {
        C* row = p + i * distance;
        std::fill(row + n, row + columns, -std::numeric_limits<C>::infinity());
        const auto [largest, sum] = exp_of_differences(row, columns);
        head.sums<C>(t.log_sums)[first + i] = largest + std::log(sum);
        inverse[i] = C(1) / sum;
        if (call.options.dropout == 0) continue;
        head.dropout_factors(first + i, 0, n, words, factors);
        multiply(n, factors, row);
      }
      product<false>(m, padded, n, p, distance, v, padded, o, padded, false);
      for (int64_t i = 0; i < m; ++i) write_row(call.width, inverse[i], o + i * padded, query(t.out)(i));
    }
  }
}

template <class T, class C = compute_t<T>>
class BackwardHeads {
 public:
  BackwardHeads(const AttentionCall& call, const AttentionTensors& t, const Tensor& d_out, const Tensor& dq,
                const Tensor& dk, const Tensor& dv)
      : call_(call),
        t_(t),
        d_out_(d_out),
        dq_(dq),
        dk_(dk),
        dv_(dv),
        memory_(call.pool, 3 * call.queries * padded_ + call.queries + 3 * kKeyBlock * padded_ +
                               (2 * call.width + 2 * kQueryBlock + 1) * distance_) {}

  void run(int64_t unit) {
    const Head head(call_, unit);
    const int64_t n = head.count(), queries = call_.queries, width = call_.width;
    copy_rows(queries, width, static_cast<C>(call_.scale), head.query<T>(t_.q), padded_, q_);
    copy_rows(queries, width, C(1), head.query<T>(d_out_), padded_, g_);
    for (int64_t i = 0; i < queries; ++i) delta_[i] = dot(width, g_ + i * padded_, head.query<T>(t_.out)(i));
    std::fill_n(d_q_, queries * padded_, C(0));
    if (n < call_.keys) clear_masked(head);
    for (int64_t first = 0; first < n; first += kKeyBlock) keys(head, first, std::min(kKeyBlock, n - first));
    if (!dq_.defined()) return;
    for (int64_t i = 0; i < queries; ++i)
      write_row(width, static_cast<C>(call_.scale), d_q_ + i * padded_, head.query<T>(dq_)(i));
  }

 private:
  void clear_masked(const Head& head) {
    for (const Tensor& gradient : {dk_, dv_})
      for (int64_t j = 0; gradient.defined() && j < call_.keys; ++j)
        std::fill_n(gradient.data<T>() + head.row_of(j, call_.keys), call_.width, T(C(0)));
  }

  // Gradients of the n keys from `first` on, and what they add to dq.
  void keys(const Head& head, int64_t first, int64_t n) {
    const int64_t width = call_.width, columns = padded_columns<C>(n);
    copy_rows(n, width, C(1), head.key<T>(t_.k, first), padded_, k_);
    copy_transposed(n, width, head.key<T>(t_.k, first), distance_, kt_);
    copy_transposed(n, width, head.key<T>(t_.v, first), distance_, vt_);
    for (int64_t i = 0; i < call_.queries; i += kQueryBlock) {
      const int64_t m = std::min(kQueryBlock, call_.queries - i);
      const C *q = q_ + i * padded_, *g = g_ + i * padded_;
      product<false>(m, columns, width, q, padded_, kt_, distance_, p_, distance_, false);
      product<false>(m, columns, width, g, padded_, vt_, distance_, ds_, distance_, false);
      for (int64_t r = 0; r < m; ++r) probabilities(head, i + r, first, n, p_ + r * distance_, ds_ + r * distance_);
      product<true>(n, padded_, m, p_, distance_, g, padded_, d_v_, padded_, i > 0);
      product<true>(n, padded_, m, ds_, distance_, q, padded_, d_k_, padded_, i > 0);
      product<false>(m, padded_, n, ds_, distance_, k_, padded_, d_q_ + i * padded_, padded_, true);
    }
    for (int64_t j = 0; j < n; ++j) {
      if (dk_.defined()) write_row(width, C(1), d_k_ + j * padded_, head.key<T>(dk_, first)(j));
      if (dv_.defined()) write_row(width, C(1), d_v_ + j * padded_, head.key<T>(dv_, first)(j));
    }
  }

  // Of query i: p becomes the probabilities behind the dropout, ds the gradient of the scores.
  void probabilities(const Head& head, int64_t i, int64_t first, int64_t n, C* p, C* ds) {
    const C log_sum = head.sums<C>(t_.log_sums)[i];
    if (call_.options.dropout == 0) return score_gradient(n, log_sum, delta_[i], p, ds);
    head.dropout_factors(i, first, n, words_, factors_);
    multiply(n, factors_, ds);
    score_gradient(n, log_sum, delta_[i], p, ds);
    multiply(n, factors_, p);
  }

  const AttentionCall& call_;
  const AttentionTensors& t_;
  const Tensor &d_out_, &dq_, &dk_, &dv_;
  const int64_t padded_ = padded_columns<C>(call_.width), distance_ = row_distance<C>(kKeyBlock);
  Workspace<C> memory_;
  C *q_ = memory_.take(call_.queries * padded_), *g_ = memory_.take(call_.queries * padded_);
  C *d_q_ = memory_.take(call_.queries * padded_), *delta_ = memory_.take(call_.queries);
  C *k_ = memory_.take(kKeyBlock * padded_), *d_k_ = memory_.take(kKeyBlock * padded_);
  C* d_v_ = memory_.take(kKeyBlock * padded_);
  C *kt_ = memory_.take(call_.width * distance_), *vt_ = memory_.take(call_.width * distance_);
  C *p_ = memory_.take(kQueryBlock * distance_), *ds_ = memory_.take(kQueryBlock * distance_);
  C* factors_ = memory_.take(distance_);
  std::vector<uint32_t> words_;
};

void forward(const AttentionCall& call, const AttentionTensors& t, int64_t begin, int64_t end) {
  dispatch_float(t.q.dtype(), "attention", [&]<class T>() { forward_heads<T>(call, t, begin, end); });
}

void backward(const AttentionCall& call, const AttentionTensors& t, const Tensor& d_out, const Tensor& dq,
              const Tensor& dk, const Tensor& dv, int64_t begin, int64_t end) {
  dispatch_float(t.q.dtype(), "attention", [&]<class T>() {
    BackwardHeads<T> heads(call, t, d_out, dq, dk, dv);
    for (int64_t unit = begin; unit < end; ++unit) heads.run(unit);
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
  parallel_for(call.batch * call.heads, call.grain(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward)(call, t, begin, end);
  });
}

void attention_backward(Cpu, const AttentionTensors& t, const AttentionOptions& options, const Tensor& d_out,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  const AttentionCall call(t, options);
  parallel_for(call.batch * call.heads, call.grain(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(backward)(call, t, d_out, dq, dk, dv, begin, end);
  });
}

}  // namespace godwit
#endif
