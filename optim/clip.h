// Global-norm clipping: one norm over all parameters, one factor for all ranks.
#pragma once
#include <string>
#include <vector>

#include "comm/parallel/bucket.h"
#include "comm/group.h"

namespace godwit {

// Sums of squares are taken in float64 over fixed blocks of each parameter and added in layout order, so the norm has
// the same bits on any number of threads and for any bucket size.
class NormClip {
 public:
  NormClip(const Buckets& buckets, double limit);  // throws unless limit is positive and finite

  // Its gradient, once that is complete, or the part of it that is: then ranks with disjoint parts measure all of it.
  void measure(const Bucket& bucket) { measure(bucket, {0, bucket.numel}); }
  void measure(const Bucket& bucket, const Segment& part);
  // After measure() of all buckets: min(1, limit / (norm + 1e−6)), as in PyTorch's clip_grad_norm_. Throws, naming the
  // step and the first parameter at fault, when the norm is not finite.
  double factor(int64_t step);
  // Collective, 8 bytes to each rank. sum: of gradients whose parts the ranks measured. mean: of gradients that differ
  // between ranks; the norm is √(mean over the ranks of Σg²), at least that of the mean gradient.
  double factor(int64_t step, Group& world, Reduce op);
  double norm() const { return norm_; }  // of the last factor()

 private:
  double sum() const;
  int64_t first_not_finite() const;  // slot, counted over all buckets; names_.size(): none
  [[noreturn]] void fail_not_finite(int64_t step, const std::string& where, int64_t slot) const;

  double limit_, norm_ = 0;
  std::vector<std::vector<double>> squares_;  // per bucket and slot
  std::vector<std::string> names_;            // of all slots, in layout order
};

void scale_gradient(Bucket& bucket, double factor);
double sum_of_squares(const Tensor& x);  // the same way as the norm's

namespace detail {
// Σx² of each range of x; on a GPU the host waits for them.
std::vector<double> sums_of_squares(Cpu, const Tensor& x, const std::vector<Segment>& ranges);
std::vector<double> sums_of_squares(Cuda, const Tensor& x, const std::vector<Segment>& ranges);
void scale(Cpu, const Tensor& x, double factor);
void scale(Cuda, const Tensor& x, double factor);
}  // namespace detail

}  // namespace godwit
