#include "autograd/ops/softmax_cross_entropy.h"

#include <cmath>
#include <limits>

#include "engine/graph.h"
#include "engine/row_sum.h"
#include "engine/vector_math.h"

namespace godwit {
void check_labels(int64_t n, int64_t classes, const Tensor& labels, std::optional<int32_t> ignore,
                  const char* operation) {
  check(labels.dtype() == DType::i32 && labels.shape() == Shape{n}, operation, ": labels must be ", DType::i32, " ",
        Shape{n}, ", got ", labels.dtype(), " ", labels.shape());
  const auto check_all = [=] {
    for (int64_t i = 0; i < labels.numel(); ++i) {
      const int32_t label = labels.data<int32_t>()[i];
      check(label == ignore || (label >= 0 && label < classes), operation, ": label ", i, " is ", label, ", there are ",
            classes, " classes");
    }
  };
  check_all();
  on_replay(check_all);
}

namespace {

void check_labels(const Tensor& logits, const Tensor& labels, std::optional<int32_t> ignore, const char* operation) {
  check(logits.shape().rank() == 2, operation, ": logits must be [n, classes], got ", logits.shape());
  godwit::check_labels(logits.dim(0), logits.dim(1), labels, ignore, operation);
}

int64_t loss_grain(int64_t classes) { return std::max<int64_t>(1, (1 << 13) / std::max<int64_t>(classes, 1)); }

constexpr int64_t kPiece = 512;  // classes per piece, which fits in the L1 cache

// Maximum of x [n]; NaN is ignored.
template <class T>
GODWIT_INLINE inline T largest_of(const T* x, int64_t n) {
  constexpr int64_t kLanes = 32;
  T lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<T>::infinity());
  for (int64_t c = 0; c < n; c += kLanes)
    for (int64_t l = 0; l < std::min(kLanes, n - c); ++l) lanes[l] = x[c + l] > lanes[l] ? x[c + l] : lanes[l];
  return *std::max_element(lanes, lanes + kLanes);
}

// log Σ_c exp(x_c) in one pass. The running sum is Σ exp(x_c - largest), where `largest` is the largest value so far.
// Each piece is summed in T.
template <class T>
GODWIT_INLINE inline double log_sum_of(const T* x, int64_t n) {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  T largest = kNone;
  double sum = 0;
  for (int64_t c = 0; c < n; c += kPiece) {
    const int64_t end = std::min(n, c + kPiece);
    const T top = largest_of(x + c, end - c);
    if (top > largest) {
      if (largest > kNone) sum *= std::exp(static_cast<double>(largest) - static_cast<double>(top));
      largest = top;
    }
    const T base = largest > kNone ? largest : 0;
    sum += static_cast<double>(row_sum<T>(c, end, [=](int64_t i) GODWIT_INLINE { return exp_below(x[i] - base); }));
  }
  return static_cast<double>(largest) + std::log(sum);
}

}  // namespace

void softmax_cross_entropy_forward(Cpu, const Tensor& logits, const Tensor& labels, double smoothing,
                                   std::optional<int32_t> ignore, const Tensor& losses, const Tensor& log_sums,
                                   std::optional<int64_t> given) {
  const int64_t n = logits.dim(0), stride = logits.dim(1), classes = given.value_or(stride);
  const int32_t* label = labels.data<int32_t>();
  double *loss = losses.data<double>(), *log_sum = log_sums.data<double>();
  dispatch_real(logits.dtype(), "softmax_cross_entropy", [&]<class T>() {
    compute_for(n, loss_grain(classes), [=, all = logits.data<T>()](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t i = begin; i < end; ++i) {
        const T* x = all + i * stride;
        loss[i] = log_sum[i] = 0;
        if (label[i] == ignore) continue;
        const double log_sum_x = log_sum[i] = log_sum_of(x, classes);
        loss[i] = (1 - smoothing) * (log_sum_x - static_cast<double>(x[label[i]]));
        if (smoothing == 0) continue;  // a class at -inf must not contribute
        const auto term = [=](int64_t c) GODWIT_INLINE { return log_sum_x - static_cast<double>(x[c]); };
        loss[i] += smoothing / static_cast<double>(classes) * row_sum<double>(0, classes, term);
      }
    });
  });
}

void mean_loss(Cpu, const Tensor& losses, double share, const Tensor& mean) {
  double sum = 0;
  for (const double loss : losses.span<double>()) sum += loss * share;
  mean.fill(sum);
}

void softmax_cross_entropy_backward(Cpu, const Tensor& logits, const Tensor& labels, double smoothing,
                                    std::optional<int32_t> ignore, const Tensor& log_sums, const Tensor& dy,
                                    double share, const Tensor& d_logits, int64_t first) {
  const int64_t n = logits.dim(0), classes = logits.dim(1);
  const double scale = dy.item() * share;
  const int32_t* label = labels.data<int32_t>();
  const double* log_sum = log_sums.data<double>();
  dispatch_real(logits.dtype(), "softmax_cross_entropy", [&]<class T>() {
    const T *all = logits.data<T>(), off = static_cast<T>(smoothing / static_cast<double>(classes));
    const T factor = static_cast<T>(scale), at_label = static_cast<T>(scale * (1 - smoothing));
    T* gradient = d_logits.data<T>();
    compute_for(n, loss_grain(classes), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t i = begin; i < end; ++i) {
        const T* x = all + i * classes;
        T* dx = gradient + i * classes;
        if (label[i] == ignore) {
          std::fill_n(dx, classes, T(0));
          continue;
        }
        const T most = static_cast<T>(log_sum[i]), rest = static_cast<T>(static_cast<double>(most) - log_sum[i]);
        GODWIT_IN_PLACE
        for (int64_t c = 0; c < classes; ++c) dx[c] = factor * (exp_below(x[c] - most, rest) - off);
        if (const int64_t at = label[i] - first; at >= 0 && at < classes) dx[at] -= at_label;
      }
    });
  });
}

void top_k_hits(Cpu, const Tensor& logits, const Tensor& labels, int k, const Tensor& hits) {
  const int64_t classes = logits.dim(1);
  dispatch_real(logits.dtype(), "top_k_correct", [&]<class T>() {
    for (int64_t i = 0; i < logits.dim(0); ++i) {
      const T* x = logits.data<T>() + i * classes;
      const int64_t label = labels.data<int32_t>()[i];
      int64_t before = 0;
      for (int64_t c = 0; c < classes; ++c) before += goes_before(x, c, label);
      hits.data<double>()[i] = before < k && !std::isnan(x[label]);
    }
  });
}

namespace ops {

// Labels are checked and counted on the CPU, where loaders put them. For labels on a GPU, the host waits.
Var softmax_cross_entropy(const Var& logits, const Tensor& labels, double label_smoothing,
                          std::optional<int32_t> ignore) {
  const Tensor here = labels.to(kCpu), there = labels.to(logits.device());
  check_labels(logits.value(), here, ignore, "softmax_cross_entropy");
  check(!ignore || !capturing(), "softmax_cross_entropy: `ignore` makes the host count rows, which a step ",
        "captured as CUDA graphs cannot repeat; do not use `ignore` in captured steps");
  const int64_t n = logits.dim(0);
  check(n > 0, "softmax_cross_entropy: the batch is empty, logits are ", logits.shape());
  check(label_smoothing >= 0 && label_smoothing <= 1, "softmax_cross_entropy: label smoothing must be in [0, 1], got ",
        label_smoothing);
  int64_t counted = 0;
  for (const int32_t label : here.span<int32_t>()) counted += label != ignore;
  const double share = 1 / static_cast<double>(std::max<int64_t>(counted, 1));
  const Tensor losses({n}, DType::f64, logits.device()), log_sums({n}, DType::f64, logits.device());
  const Tensor mean({}, logits.dtype(), logits.device());
  on_device(mean, [&](auto device) {
    softmax_cross_entropy_forward(device, logits.value(), there, label_smoothing, ignore, losses, log_sums);
    mean_loss(device, losses, share, mean);
  });
  return Var::result(
      mean, {logits},
      [dx = logits.gradient(), x = logits.value(), there, label_smoothing, ignore, log_sums, share](const Tensor& dy) {
        const Tensor g = x.shared() ? dx.target() : x;  // last use of x
        on_device(x, [&](auto device) {
          softmax_cross_entropy_backward(device, x, there, label_smoothing, ignore, log_sums, dy, share, g);
        });
        dx.add(g);
      });
}

Tensor top_k_correct(const Tensor& logits, const Tensor& labels, int k) {
  check_labels(logits, labels.to(kCpu), std::nullopt, "top_k_correct");
  check(k >= 1, "top_k_correct: k must be at least 1, got ", k);
  const Tensor there = labels.to(logits.device()), hits({logits.dim(0)}, DType::f64, logits.device());
  const Tensor correct({}, DType::f64, logits.device());
  on_device(logits, [&](auto device) {
    top_k_hits(device, logits, there, k, hits);
    mean_loss(device, hits, 1, correct);  // integers, so the sum is exact
  });
  return correct;
}

}  // namespace ops
}  // namespace godwit
