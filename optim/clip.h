// Gradient clipping by global norm: one norm over all parameters, and one factor for all ranks.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/buckets/bucket.h"
#include "comm/group.h"

namespace godwit {

// Squares are summed in float64 over fixed blocks of each parameter and added in layout order. The norm is therefore
// bit-exact for any thread count and bucket size.
class NormClip {
 public:
  NormClip(const Buckets& buckets, double limit);  // throws unless limit is positive and finite

  // Measures the bucket's complete gradient. With `part`, measures only this part, for ranks that measure disjoint
  // parts.
  void measure(const Bucket& bucket) { measure(bucket, {0, bucket.numel}); }
  void measure(const Bucket& bucket, const Segment& part);
  // Must be called after all buckets have been measured. Returns min(1, limit / (norm + 1e−6)), like PyTorch's
  // clip_grad_norm_, as float64 [1] on the gradients' device. If the norm is not finite, throws an Error that names the
  // step and the first bad parameter; on a GPU, read_on_host() throws it.
  Tensor factor(int64_t step);
  // Collective. Sends 16 bytes to each rank. With Reduce::sum, the ranks measured disjoint parts of one gradient. With
  // Reduce::mean, the gradients differ between ranks; the norm is √(mean over ranks of Σg²), an upper bound on the norm
  // of the mean gradient.
  Tensor factor(int64_t step, Group& world, Reduce op);
  double norm() const { return norm_; }  // norm of the last factor() call whose result has been read

 private:
  [[noreturn]] void fail_not_finite(int64_t step, const std::string& where, int64_t slot) const;

  double limit_, norm_ = 0;
  Tensor squares_;                  // [slots] float64, for all buckets in layout order
  std::vector<int64_t> first_;      // index of the first slot of each bucket
  std::vector<std::string> names_;  // names of all slots, in layout order
};

// Multiplies the owned elements by `factor` [1] if it is below 1.
void scale_gradient(Bucket& bucket, const Tensor& factor);
double sum_of_squares(const Tensor& x);  // Σx² in float64, in the summation order of the norm
// Calls f(sum_of_squares(x)). On a GPU, read_on_host() makes the call.
void read_sum_of_squares(const Tensor& x, std::function<void(double)> f);

namespace detail {
// Σx² of each range of x, as float64 [ranges] on x's device.
Tensor squares_of_ranges(Cpu, const Tensor& x, const std::vector<Segment>& ranges);
Tensor squares_of_ranges(Cuda, const Tensor& x, const std::vector<Segment>& ranges);
template <class Where>
std::vector<double> sums_of_squares(Where device, const Tensor& x, const std::vector<Segment>& ranges) {  // waits
  return squares_of_ranges(device, x, ranges).template to_vector<double>();
}
// [2] float64: Σ squares, in order, and the index of the first value that is not finite (their number if all are).
Tensor norm_message(Cpu, const Tensor& squares);
Tensor norm_message(Cuda, const Tensor& squares);
// [1] float64: min(1, limit / (√(Σ squares / ranks) + 1e−6)), summed in order. 1 if the norm is NaN, 0 if the norm is
// infinite. squares: float64 [n], or messages [n, 2] of norm_message().
Tensor clip_factor(Cpu, const Tensor& squares, double limit, double ranks);
Tensor clip_factor(Cuda, const Tensor& squares, double limit, double ranks);
inline int64_t row_width(const Tensor& squares) { return squares.shape().rank() == 2 ? 2 : 1; }  // 1, or 2 for messages
// x ← factor · x if factor [1], float64 on x's device, is below 1.
void scale(Cpu, const Tensor& x, const Tensor& factor);
void scale(Cuda, const Tensor& x, const Tensor& factor);
}  // namespace detail

}  // namespace godwit
