// Gradient clipping by global norm: one norm over all parameters, one factor for all ranks.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/parallel/bucket.h"
#include "comm/group.h"

namespace godwit {

// Squares are summed in float64 over fixed blocks of each parameter and added in layout order, so the norm is bit-exact
// for any thread count and bucket size.
class NormClip {
 public:
  NormClip(const Buckets& buckets, double limit);  // throws unless limit is positive and finite

  // Measures the bucket's complete gradient, or only `part`, for ranks that measure disjoint parts.
  void measure(const Bucket& bucket) { measure(bucket, {0, bucket.numel}); }
  void measure(const Bucket& bucket, const Segment& part);
  // Call after measuring all buckets. Returns min(1, limit / (norm + 1e−6)), like PyTorch's clip_grad_norm_. Throws,
  // naming the step and the first bad parameter, if the norm is not finite.
  double factor(int64_t step);
  // Collective; sends 8 bytes to each rank. sum: the ranks measured disjoint parts of the same gradient. mean: the
  // gradients differ between ranks; the norm is √(mean over ranks of Σg²), an upper bound on the norm of the mean
  // gradient.
  double factor(int64_t step, Group& world, Reduce op);
  double norm() const { return norm_; }  // of the last factor() call

 private:
  double sum() const;
  int64_t first_not_finite() const;  // slot index over all buckets; names_.size() if none
  [[noreturn]] void fail_not_finite(int64_t step, const std::string& where, int64_t slot) const;

  double limit_, norm_ = 0;
  std::vector<std::vector<double>> squares_;  // by bucket and slot
  std::vector<std::string> names_;            // of all slots, in layout order
};

void scale_gradient(Bucket& bucket, double factor);  // of the owned elements
double sum_of_squares(const Tensor& x);  // Σx² in float64, in the order used for the norm
// Calls f(sum_of_squares(x)); on a GPU by read_on_host().
void read_sum_of_squares(const Tensor& x, std::function<void(double)> f);

namespace detail {
// Σx² of each range of x, as float64 [ranges] on its device.
Tensor squares_of_ranges(Cpu, const Tensor& x, const std::vector<Segment>& ranges);
Tensor squares_of_ranges(Cuda, const Tensor& x, const std::vector<Segment>& ranges);
template <class Where>
std::vector<double> sums_of_squares(Where device, const Tensor& x, const std::vector<Segment>& ranges) {  // waits
  return squares_of_ranges(device, x, ranges).template to_vector<double>();
}
void scale(Cpu, const Tensor& x, double factor);
void scale(Cuda, const Tensor& x, double factor);
}  // namespace detail

}  // namespace godwit
