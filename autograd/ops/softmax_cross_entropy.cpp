#include "autograd/ops/softmax_cross_entropy.h"

#include <cmath>
#include <limits>

#include "engine/parallel.h"

namespace godwit {
namespace {

void check_labels(const Tensor& logits, const Tensor& labels, const char* operation) {
  check(logits.shape().rank() == 2, operation, ": logits must be [n, classes], they are ", logits.shape());
  check(labels.dtype() == DType::i32 && labels.shape() == Shape{logits.dim(0)}, operation, ": labels must be ",
        DType::i32, " ", Shape{logits.dim(0)}, ", they are ", labels.dtype(), " ", labels.shape());
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const int32_t label = labels.data<int32_t>()[i];
    check(label >= 0 && label < logits.dim(1), operation, ": label ", i, " is ", label, ", there are ", logits.dim(1),
          " classes");
  }
}

int64_t row_grain(int64_t classes) { return std::max<int64_t>(1, (1 << 13) / std::max<int64_t>(classes, 1)); }

}  // namespace

void softmax_cross_entropy_forward(Cpu, const Tensor& logits, const Tensor& labels, double smoothing,
                                   const Tensor& losses, const Tensor& log_sums) {
  const int64_t n = logits.dim(0), classes = logits.dim(1);
  const int32_t* label = labels.data<int32_t>();
  double *loss = losses.data<double>(), *log_sum = log_sums.data<double>();
  dispatch_real(logits.dtype(), "softmax_cross_entropy", [&]<class T>() {
    parallel_for(n, row_grain(classes), [=, all = logits.data<T>()](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* x = all + i * classes;
        T largest = -std::numeric_limits<T>::infinity();
        for (int64_t c = 0; c < classes; ++c) largest = x[c] > largest ? x[c] : largest;
        double sum = 0, total = 0;
        for (int64_t c = 0; c < classes; ++c) sum += std::exp(x[c] - largest);
        log_sum[i] = largest + std::log(sum);
        loss[i] = (1 - smoothing) * (log_sum[i] - x[label[i]]);
        if (smoothing == 0) continue;  // a class at -inf must not count then
        for (int64_t c = 0; c < classes; ++c) total += log_sum[i] - x[c];
        loss[i] += smoothing / static_cast<double>(classes) * total;
      }
    });
  });
}

void softmax_cross_entropy_backward(Cpu, const Tensor& logits, const Tensor& labels, double smoothing,
                                    const Tensor& log_sums, double scale, const Tensor& d_logits) {
  const int64_t n = logits.dim(0), classes = logits.dim(1);
  const int32_t* label = labels.data<int32_t>();
  const double* log_sum = log_sums.data<double>();
  dispatch_real(logits.dtype(), "softmax_cross_entropy", [&]<class T>() {
    const T *all = logits.data<T>(), off = static_cast<T>(smoothing / static_cast<double>(classes));
    T* gradient = d_logits.data<T>();
    parallel_for(n, row_grain(classes), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* x = all + i * classes;
        T* dx = gradient + i * classes;
        for (int64_t c = 0; c < classes; ++c)
          dx[c] = static_cast<T>(scale) * (std::exp(static_cast<T>(x[c] - log_sum[i])) - off);
        dx[label[i]] -= static_cast<T>(scale * (1 - smoothing));
      }
    });
  });
}

namespace ops {

Var softmax_cross_entropy(const Var& logits, const Tensor& labels, double label_smoothing) {
  check_labels(logits.value(), labels, "softmax_cross_entropy");
  const int64_t n = logits.dim(0);
  check(n > 0, "softmax_cross_entropy: the batch is empty, logits are ", logits.shape());
  check(label_smoothing >= 0 && label_smoothing <= 1,
        "softmax_cross_entropy: label smoothing must be in [0, 1], it is ", label_smoothing);
  Tensor losses({n}, DType::f64), log_sums({n}, DType::f64);
  softmax_cross_entropy_forward(Cpu{}, logits.value(), labels, label_smoothing, losses, log_sums);
  double mean = 0;
  for (const double loss : losses.span<double>()) mean += loss / static_cast<double>(n);
  return Var::result(Tensor::full({}, mean, logits.dtype()), {logits},
                     [dx = logits.gradient(), x = logits.value(), labels, label_smoothing, log_sums](const Tensor& dy) {
                       Tensor g = dx.target();
                       softmax_cross_entropy_backward(Cpu{}, x, labels, label_smoothing, log_sums,
                                                      dy.item() / static_cast<double>(x.dim(0)), g);
                       dx.add(g);
                     });
}

int64_t top_k_correct(const Tensor& logits, const Tensor& labels, int k) {
  check_labels(logits, labels, "top_k_correct");
  check(k >= 1, "top_k_correct: k must be at least 1, it is ", k);
  const int64_t classes = logits.dim(1);
  int64_t correct = 0;
  dispatch_real(logits.dtype(), "top_k_correct", [&]<class T>() {
    for (int64_t i = 0; i < logits.dim(0); ++i) {
      const T* x = logits.data<T>() + i * classes;
      const int64_t label = labels.data<int32_t>()[i];
      int64_t before = 0;
      for (int64_t c = 0; c < classes; ++c)
        before += c != label && (x[c] > x[label] || std::isnan(x[c]) || (x[c] == x[label] && c < label));
      correct += before < k && !std::isnan(x[label]);
    }
  });
  return correct;
}

}  // namespace ops
}  // namespace godwit
