// Softmax cross-entropy with label smoothing, the mean over a batch; and top-k hits for evaluation.
#pragma once
#include <optional>

#include "autograd/var.h"
#include "engine/inline.h"

namespace godwit {

// losses [n] and log_sums [n] (log Σ_c exp(logits_c)), both float64, from logits [n, classes] and int32 labels [n];
// both are 0 where the label is `ignore`.
void softmax_cross_entropy_forward(Cpu, const Tensor& logits, const Tensor& labels, double smoothing,
                                   std::optional<int32_t> ignore, const Tensor& losses, const Tensor& log_sums);
void softmax_cross_entropy_forward(Cuda, const Tensor& logits, const Tensor& labels, double smoothing,
                                   std::optional<int32_t> ignore, const Tensor& losses, const Tensor& log_sums);
// mean, one element of any type, = Σ share · losses.
void mean_loss(Cpu, const Tensor& losses, double share, const Tensor& mean);
void mean_loss(Cuda, const Tensor& losses, double share, const Tensor& mean);
// d_logits = dy · share · (softmax(logits) - target), where dy has one element and target = (1 - smoothing) ·
// onehot(label) + smoothing / classes; 0 where the label is `ignore`. d_logits may be logits.
void softmax_cross_entropy_backward(Cpu, const Tensor& logits, const Tensor& labels, double smoothing,
                                    std::optional<int32_t> ignore, const Tensor& log_sums, const Tensor& dy,
                                    double share, const Tensor& d_logits);
void softmax_cross_entropy_backward(Cuda, const Tensor& logits, const Tensor& labels, double smoothing,
                                    std::optional<int32_t> ignore, const Tensor& log_sums, const Tensor& dy,
                                    double share, const Tensor& d_logits);

// Class c of a row goes before the label: it is larger, or equal and lower, or NaN.
template <class T>
GODWIT_INLINE inline bool goes_before(const T* x, int64_t c, int64_t label) {
  return c != label && (x[c] > x[label] || x[c] != x[c] || (x[c] == x[label] && c < label));
}
// hits [n] float64: 1 where the label is among the k largest of its row, else 0; as ops::top_k_correct counts.
void top_k_hits(Cpu, const Tensor& logits, const Tensor& labels, int k, const Tensor& hits);
void top_k_hits(Cuda, const Tensor& logits, const Tensor& labels, int k, const Tensor& hits);

namespace ops {

// The mean of -Σ_c target_c · log softmax(logits)_c over the rows whose label is not `ignore`, as a scalar of the
// logits' type, float32 or float64; 0 when there is no such row. Throws when another label is outside [0, classes) or
// label_smoothing outside [0, 1].
Var softmax_cross_entropy(const Var& logits, const Tensor& labels, double label_smoothing = 0,
                          std::optional<int32_t> ignore = std::nullopt);

// How many rows of logits [n, classes] have their label among the k largest: one float64, where the logits are. Of
// equal logits the lower class goes first, NaN goes before every number, and a label whose own logit is NaN is never a
// hit.
Tensor top_k_correct(const Tensor& logits, const Tensor& labels, int k);

}  // namespace ops
}  // namespace godwit
