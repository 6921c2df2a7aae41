// LateVariance: second moments of values whose first gradient comes after v has been frozen.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/exchange/error_feedback_all_reduce.h"
#include "optim/one_bit_options.h"

namespace godwit {

// For optimizers that freeze v after step T and set the momentum of values with v = 0 to 0. These values need no error
// feedback, so their elements of `e` store the second moment of this rank's gradients since T instead:
//   eᵢ ← β2·eᵢ + (1−β2)·gᵢ²
// A refresh in step t exchanges √eᵢ, and v̂ becomes (mean of √eᵢ)²/(1 − β2^(t−T)). If only one rank has gradients of
// the value, this is the second moment of the mean gradient; otherwise it is at least as large.
//
// Values with v > 0 are not changed. If no value of a bucket has v = 0, its bits and traffic are the same as without a
// LateVariance.
class LateVariance {
 public:
  // `on`: whether values with v = 0 get a second moment; otherwise the functions have no effect. `buckets`: number of
  // buckets.
  LateVariance(bool on, double beta2, int64_t buckets);

  // Must be called for each bucket in each step after T, with this rank's gradient in bucket.grad, before v may change.
  void measure(const Bucket& bucket, const Tensor& v, const Tensor& e);
  // Must be called in step T + 1, before measure(), if `e` was used before T.
  void begin(const Bucket& bucket, const Tensor& v, const Tensor& e);
  // Calls all_reduce.mean(bucket, z, mean, comm, step) and preserves the second moments in `e`.
  void mean(ErrorFeedbackAllReduce& all_reduce, const Bucket& bucket, const Tensor& v, const Tensor& z,
            const Tensor& mean, Communicator& comm, int64_t step);
  // Collective, in a refresh after measure(). Returns the mean over the ranks of bucket.grad where v > 0, and of √eᵢ
  // where v = 0. Values of `e` with v = 0 begin anew. v may be changed only after this call.
  Tensor exchange(const Bucket& bucket, const Tensor& v, const Tensor& e, Group& world, DenseWire wire,
                  const std::string& purpose);
  // Whether v of some value of the bucket is 0. Equal on all ranks. False if not `on`.
  bool any(const Bucket& bucket, const Tensor& v);
  void forget();  // must be called after v of all buckets has changed

 private:
  enum class Zeros : int8_t { unknown, none, some };
  bool on_;
  double beta2_;
  std::vector<Zeros> zeros_;  // zeros of v in each bucket
};

// The divisor of late second moments: v̂ of a value is the squared result of LateVariance::exchange() divided by this
// number. `steps`: number of steps since T.
double late_correction(double beta2, int64_t steps);
// Whether a step in [first, last] equals after + h·(2ʲ − 1) for some j > 0.
bool has_refresh(int64_t after, int64_t h, int64_t first, int64_t last);

}  // namespace godwit
