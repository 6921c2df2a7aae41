#include "autograd/ops/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/ops/add.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/reshape.h"
#include "engine/row_sum.h"

namespace godwit {
namespace {

int64_t experts_grain(int64_t width) { return std::max<int64_t>(1, (1 << 14) / (width + 1)); }

void check_rows(const char* operation, const Tensor& x, int64_t rows) {
  check(x.shape().rank() == 2 && x.dim(0) == rows && x.dim(1) > 0, operation, ": expected [", rows,
        ", columns], got ", x.shape());
}

// Indices of the k largest values, largest first.
template <class T>
void largest_of(const T* values, int64_t count, int64_t k, std::vector<int32_t>& order, int32_t* to) {
  std::iota(order.begin(), order.begin() + count, 0);
  std::partial_sort(order.begin(), order.begin() + k, order.begin() + count,
                    [&](int32_t a, int32_t b) { return values[a] != values[b] ? values[a] > values[b] : a < b; });
  std::copy_n(order.begin(), k, to);
}

}  // namespace

ExpertRouting route_to_experts(const Tensor& probabilities, int64_t k) {
  check(probabilities.shape().rank() == 2 && probabilities.numel() > 0,
        "experts: probabilities must be [n, experts] and not empty, got ", probabilities.shape());
  const int64_t n = probabilities.dim(0), experts = probabilities.dim(1);
  check(k >= 1 && k <= experts, "experts: a token must use 1 to ", experts, " experts, not ", k);
  const Tensor here = probabilities.to(kCpu);
  ExpertRouting routing{Tensor({n, k}, DType::i32, kCpu), Tensor({n, k}, DType::i32, kCpu),
                        Tensor({n * k}, DType::i32, kCpu), std::vector<int64_t>(static_cast<size_t>(experts) + 1)};
  int32_t* chosen = routing.experts.data<int32_t>();
  dispatch_float(here.dtype(), "experts", [&]<class T>() {
    const T* p = here.data<T>();
    std::vector<int32_t> order(static_cast<size_t>(experts));
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t e = 0; e < experts; ++e)
        check(!std::isnan(compute_t<T>(p[t * experts + e])), "experts: the probability of expert ", e, " for token ", t,
              " is not a number");
      largest_of(p + t * experts, experts, k, order, chosen + t * k);
    }
  });
  for (int64_t i = 0; i < n * k; ++i) ++routing.start[static_cast<size_t>(chosen[i]) + 1];
  std::partial_sum(routing.start.begin(), routing.start.end(), routing.start.begin());
  std::vector<int64_t> next(routing.start.begin(), routing.start.end() - 1);
  for (int64_t i = 0; i < n * k; ++i) {
    const int64_t slot = next[static_cast<size_t>(chosen[i])]++;
    routing.slots.data<int32_t>()[i] = static_cast<int32_t>(slot);
    routing.tokens.data<int32_t>()[slot] = static_cast<int32_t>(i / k);
  }
  return routing;
}

void expert_weights_forward(Cpu, const Tensor& probabilities, const Tensor& ids, const Tensor& weights) {
  const int64_t experts = probabilities.dim(1), k = ids.dim(1);
  const int32_t* id = ids.data<int32_t>();
  dispatch_float(probabilities.dtype(), "expert_weights", [&]<class T>() {
    const T* p = probabilities.data<T>();
    T* to = weights.data<T>();
    parallel_for(ids.dim(0), experts_grain(k), [=](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        compute_t<T> sum = 0;
        for (int64_t s = t * k; s < (t + 1) * k; ++s) sum += compute_t<T>(p[t * experts + id[s]]);
        for (int64_t s = t * k; s < (t + 1) * k; ++s)
          to[s] = static_cast<T>(compute_t<T>(p[t * experts + id[s]]) / sum);
      }
    });
  });
}

// With w = p / Σ p: dp = (dy - Σ dy · w) / Σ p.
void expert_weights_backward(Cpu, const Tensor& probabilities, const Tensor& ids, const Tensor& dy,
                             const Tensor& d_probabilities) {
  const int64_t experts = probabilities.dim(1), k = ids.dim(1);
  const int32_t* id = ids.data<int32_t>();
  dispatch_float(probabilities.dtype(), "expert_weights", [&]<class T>() {
    using C = compute_t<T>;
    const T *p = probabilities.data<T>(), *g = dy.data<T>();
    T* to = d_probabilities.data<T>();
    parallel_for(ids.dim(0), experts_grain(experts), [=](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        C sum = 0, product = 0;
        for (int64_t s = t * k; s < (t + 1) * k; ++s) {
          sum += C(p[t * experts + id[s]]);
          product += C(p[t * experts + id[s]]) * C(g[s]);
        }
        std::fill_n(to + t * experts, experts, T(C(0)));
        for (int64_t s = t * k; s < (t + 1) * k; ++s)
          to[t * experts + id[s]] = static_cast<T>((C(g[s]) - product / sum) / sum);
      }
    });
  });
}

void combine_experts_forward(Cpu, const Tensor& x, const Tensor& weights, const Tensor& slots, const Tensor& y) {
  const int64_t width = x.dim(1), k = slots.dim(1);
  const int32_t* slot = slots.data<int32_t>();
  dispatch_float(x.dtype(), "combine_experts", [&]<class T>() {
    using C = compute_t<T>;
    const T* from = x.data<T>();
    const C* weight = weights.data<C>();
    T* to = y.data<T>();
    compute_for(y.dim(0), experts_grain(k * width), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      std::vector<C> sums(width);
      C* __restrict sum = sums.data();
      for (int64_t t = begin; t < end; ++t) {
        std::fill_n(sum, width, C(0));
        for (int64_t s = t * k; s < (t + 1) * k; ++s) {
          const T* row = from + slot[s] * width;
          const C w = weight[s];
          for (int64_t c = 0; c < width; ++c) sum[c] += w * C(row[c]);
        }
        for (int64_t c = 0; c < width; ++c) to[t * width + c] = static_cast<T>(sum[c]);
      }
    });
  });
}

void combine_experts_backward(Cpu, const Tensor& x, const Tensor& weights, const Tensor& slots, const Tensor& dy,
                              const Tensor& dx, const Tensor& d_weights) {
  const int64_t width = x.dim(1), k = slots.dim(1);
  const int32_t* slot = slots.data<int32_t>();
  dispatch_float(x.dtype(), "combine_experts", [&]<class T>() {
    using C = compute_t<T>;
    const T *from = x.data<T>(), *all = dy.data<T>();
    const C* weight = weights.data<C>();
    T* to = dx.data<T>();
    C* to_weights = d_weights.data<C>();
    compute_for(dy.dim(0), experts_grain(k * width), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t s = t * k; s < (t + 1) * k; ++s) {
          const T *row = from + slot[s] * width, *g = all + t * width;
          T* __restrict out = to + slot[s] * width;
          const C w = weight[s];
          to_weights[s] = row_sum<C>(0, width, [=](int64_t c) GODWIT_INLINE { return C(g[c]) * C(row[c]); });
          for (int64_t c = 0; c < width; ++c) out[c] = static_cast<T>(w * C(g[c]));
        }
    });
  });
}

namespace ops {

Var expert_weights(const Var& probabilities, const ExpertRouting& routing) {
  check_rows("expert_weights", probabilities.value(), routing.experts.dim(0));
  check(probabilities.dim(1) == routing.count(), "expert_weights: probabilities are ", probabilities.shape(), " for ",
        routing.count(), " experts");
  const Tensor ids = routing.experts.to(probabilities.device());
  const Tensor weights(ids.shape(), probabilities.dtype(), probabilities.device());
  on_device(weights, [&](auto device) { expert_weights_forward(device, probabilities.value(), ids, weights); });
  return Var::result(weights, {probabilities},
                     [p = probabilities.value(), ids, d = probabilities.gradient()](const Tensor& dy) {
                       const Tensor g = d.target();
                       on_device(dy, [&](auto device) { expert_weights_backward(device, p, ids, dy, g); });
                       d.add(g);
                     });
}

Var dispatch_to_experts(const Var& x, const ExpertRouting& routing) {
  check_rows("dispatch_to_experts", x.value(), routing.experts.dim(0));
  return embedding(routing.tokens, x);
}

Var expert_linear(const Var& x, const std::vector<Var>& weights, const ExpertRouting& routing) {
  check_rows("expert_linear", x.value(), routing.tokens.numel());
  check(std::ssize(weights) == routing.count(), "expert_linear: ", weights.size(), " weights for ", routing.count(),
        " experts");
  const int64_t in = x.dim(1), out = weights[0].dim(0);
  for (const Var& w : weights)
    check(w.shape() == Shape{out, in} && w.dtype() == compute_dtype(x.dtype()), "expert_linear: a weight must be ",
          compute_dtype(x.dtype()), " ", Shape{out, in}, ", got ", w.dtype(), " ", w.shape());
  const Tensor y({x.dim(0), out}, x.dtype(), x.device());
  const auto rows_of = [routing](const Tensor& t, size_t e) {
    return t.rows(routing.start[e], routing.start[e + 1] - routing.start[e]);
  };
  std::vector<Var> inputs{x};
  std::vector<Tensor> values;
  std::vector<Gradient> gradients;
  for (size_t e = 0; e < weights.size(); ++e) {
    const Tensor w = weights[e].value();
    if (routing.rows(static_cast<int64_t>(e)) > 0)
      on_device(y, [&](auto device) { linear_forward(device, rows_of(x.value(), e), {w}, {}, rows_of(y, e)); });
    inputs.push_back(weights[e]);
    values.push_back(w);
    gradients.push_back(weights[e].gradient());
  }
  return Var::result(y, inputs, [a = x.value(), dx = x.gradient(), values, gradients, rows_of](const Tensor& dy) {
    const Tensor g = dx ? dx.target() : Tensor();
    for (size_t e = 0; e < values.size(); ++e) {
      const Tensor from = rows_of(dy, e), of_x = rows_of(a, e);
      if (gradients[e]) {
        const Tensor dw = gradients[e].target();
        if (from.dim(0) == 0) dw.zero();
        else on_device(dy, [&](auto device) { linear_backward_weights(device, of_x, from, {dw}, {}); });
        gradients[e].add(dw);
      }
      if (dx && from.dim(0) > 0)
        on_device(dy, [&](auto device) { linear_backward_data(device, from, {values[e]}, rows_of(g, e)); });
    }
    if (dx) dx.add(g);
  });
}

Var combine_experts(const Var& x, const Var& weights, const ExpertRouting& routing) {
  check_rows("combine_experts", x.value(), routing.tokens.numel());
  check(weights.shape() == routing.slots.shape() && weights.dtype() == compute_dtype(x.dtype()),
        "combine_experts: weights must be ", compute_dtype(x.dtype()), " ", routing.slots.shape(), ", got ",
        weights.dtype(), " ", weights.shape());
  const Tensor slots = routing.slots.to(x.device()), y({slots.dim(0), x.dim(1)}, x.dtype(), x.device());
  on_device(y, [&](auto device) { combine_experts_forward(device, x.value(), weights.value(), slots, y); });
  return Var::result(
      y, {x, weights},
      [a = x.value(), w = weights.value(), slots, dx = x.gradient(), dw = weights.gradient()](const Tensor& dy) {
        const Tensor g(a.shape(), a.dtype(), a.device()), g_weights(w.shape(), w.dtype(), w.device());
        on_device(dy, [&](auto device) { combine_experts_backward(device, a, w, slots, dy, g, g_weights); });
        if (dx) dx.add(g);
        if (dw) dw.add(g_weights);
      });
}

Var load_balancing_loss(const std::vector<Var>& probabilities, const std::vector<ExpertRouting>& routings) {
  check(!probabilities.empty() && probabilities.size() == routings.size(),
        "load_balancing_loss: ", probabilities.size(), " layers of probabilities and ", routings.size(),
        " layers of routings");
  const int64_t experts = routings[0].count();
  const DType type = probabilities[0].dtype();
  double tokens = 0;
  std::vector<double> uses(static_cast<size_t>(experts));
  Var sums;
  for (size_t layer = 0; layer < routings.size(); ++layer) {
    const int64_t n = probabilities[layer].dim(0);
    tokens += static_cast<double>(n);
    for (int64_t e = 0; e < experts; ++e) uses[static_cast<size_t>(e)] += static_cast<double>(routings[layer].rows(e));
    const Var sum = matmul(Var(Tensor::full({1, n}, 1, type)), probabilities[layer]);
    sums = layer == 0 ? sum : add(sums, sum);
  }
  const Tensor factors({experts, 1}, DType::f64, kCpu);
  for (int64_t e = 0; e < experts; ++e)
    factors.data<double>()[e] = static_cast<double>(experts) * uses[static_cast<size_t>(e)] / (tokens * tokens);
  return reshape(matmul(sums, Var(factors.to(type).to(probabilities[0].device()))), {});
}

}  // namespace ops
}  // namespace godwit
