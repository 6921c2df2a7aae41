// Softmax cross-entropy with label smoothing, averaged over a batch, and top-k hits for evaluation.
#pragma once
#include <optional>

#include "autograd/var.h"
#include "engine/inline.h"

namespace godwit {

// Computes losses [n] and log_sums [n] (log Σ_c exp(logits_c)), both float64, from logits [n, classes] and int32 labels
// [n]. Both are 0 for rows with label `ignore`. If `classes` is given, columns from `classes` on are not read. Logits
// are float32 or float64; on a GPU, bfloat16 is also supported.
void softmax_cross_entropy_forward(Cpu, const Tensor& logits, const Tensor& labels, double smoothing,
                                   std::optional<int32_t> ignore, const Tensor& losses, const Tensor& log_sums,
                                   std::optional<int64_t> classes = std::nullopt);
void softmax_cross_entropy_forward(Cuda, const Tensor& logits, const Tensor& labels, double smoothing,
                                   std::optional<int32_t> ignore, const Tensor& losses, const Tensor& log_sums,
                                   std::optional<int64_t> classes = std::nullopt);
// mean = Σ share · losses, as one element of any type.
void mean_loss(Cpu, const Tensor& losses, double share, const Tensor& mean);
void mean_loss(Cuda, const Tensor& losses, double share, const Tensor& mean);
// d_logits = dy · share · (softmax(logits) - target). dy has one element, and target = (1 - smoothing) · onehot(label)
// + smoothing / classes. d_logits is 0 for rows with label `ignore`. d_logits may be logits. The logits may cover only
// a part of the classes, starting at class `first`. In this case log_sums cover all classes, and labels may be outside
// the part. dy has the logits' type, or float32 for bfloat16 logits on a GPU.
void softmax_cross_entropy_backward(Cpu, const Tensor& logits, const Tensor& labels, double smoothing,
                                    std::optional<int32_t> ignore, const Tensor& log_sums, const Tensor& dy,
                                    double share, const Tensor& d_logits, int64_t first = 0);
void softmax_cross_entropy_backward(Cuda, const Tensor& logits, const Tensor& labels, double smoothing,
                                    std::optional<int32_t> ignore, const Tensor& log_sums, const Tensor& dy,
                                    double share, const Tensor& d_logits, int64_t first = 0);

// Throws unless labels are int32 [n] on the CPU and each label is `ignore` or in [0, classes). Each replay of a CUDA
// graph repeats the check.
void check_labels(int64_t n, int64_t classes, const Tensor& labels, std::optional<int32_t> ignore,
                  const char* operation);

// Whether class c ranks before the label: the logit of c is larger, or NaN, or equal and c is below the label.
template <class T>
GODWIT_INLINE inline bool goes_before(const T* x, int64_t c, int64_t label) {
  return c != label && (x[c] > x[label] || x[c] != x[c] || (x[c] == x[label] && c < label));
}
// hits [n] float64: 1 if the label is among the k largest logits of its row, otherwise 0. Ties are resolved as in
// ops::top_k_correct.
void top_k_hits(Cpu, const Tensor& logits, const Tensor& labels, int k, const Tensor& hits);
void top_k_hits(Cuda, const Tensor& logits, const Tensor& labels, int k, const Tensor& hits);

namespace ops {

// Mean of -Σ_c target_c · log softmax(logits)_c over the rows of logits [n, classes] whose label is not `ignore`, as a
// scalar of the logits' type (float32 or float64). labels: int32 [n]. The result is 0 if all labels are `ignore`.
// Throws if n is 0, if another label is outside [0, classes), if label_smoothing is outside [0, 1], and for `ignore` in
// a captured step.
Var softmax_cross_entropy(const Var& logits, const Tensor& labels, double label_smoothing = 0,
                          std::optional<int32_t> ignore = std::nullopt);

// Number of rows of logits [n, classes] whose label is among the k largest logits, as one float64 on the logits'
// device. Among equal logits, the lower class ranks first. NaN ranks before every number. A label whose logit is NaN is
// never a hit.
Tensor top_k_correct(const Tensor& logits, const Tensor& labels, int k);

}  // namespace ops
}  // namespace godwit
