// LateVariance: second moments of values whose first gradient comes after v has been frozen.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/exchange/error_feedback_all_reduce.h"
#include "optim/one_bit_options.h"

namespace godwit {

// For optimizers that freeze v after step T and set the momentum of values with v = 0 to 0. These values need no error
// feedback, so their elements of `e` store the second moment of this rank's gradients since T instead:
//   eᵢ ← β2·eᵢ + (1−β2)·gᵢ²
// A refresh in step t exchanges √eᵢ, and v̂ becomes (mean of √eᵢ)²/(1 − β2^(t−T)). If only one rank has gradients of
// the value, this is the second moment of the mean gradient; otherwise it is at least as large. If a run resumes with a
// T before its checkpoint, and the checkpoint is from before the former T, the last step before the resume takes the
// place of T.
//
// Values with v > 0 are not changed. If no value of a bucket has v = 0, its bits and traffic are the same as without a
// LateVariance.
class LateVariance {
 public:
  // `on`: whether values with v = 0 get a second moment; otherwise the functions have no effect. `buckets`: number of
  // buckets.
  LateVariance(bool on, double beta2, int64_t buckets);

  // Must be called in each step after T before the other functions, also more than once. `frozen_at`: T. If elements
  // of `e` are errors before this step and second moments after it, or vice versa, measure() sets them to 0 first.
  void begin(int64_t step, int64_t frozen_at);
  // Must be called for each bucket in each step after T, with this rank's gradient in bucket.grad, before v may change.
  void measure(const Bucket& bucket, const Tensor& v, const Tensor& e);
  // Calls all_reduce.mean(bucket, z, mean, comm, step) and preserves the second moments in `e`.
  void mean(ErrorFeedbackAllReduce& all_reduce, const Bucket& bucket, const Tensor& v, const Tensor& z,
            const Tensor& mean, Communicator& comm, int64_t step);
  // Collective, in a refresh after measure(). Returns the mean over the ranks of bucket.grad where v > 0, and of √eᵢ
  // where v = 0. Values of `e` with v = 0 begin anew. v may be changed only after this call.
  Tensor exchange(const Bucket& bucket, const Tensor& v, const Tensor& e, Group& world, DenseWire wire,
                  const std::string& purpose);
  // Whether v of some value of the bucket is 0. Equal on all ranks. False if not `on`.
  bool any(const Bucket& bucket, const Tensor& v);
  // The divisor of late second moments in this step: v̂ is the squared result of exchange() divided by this number.
  double correction() const;
  // Adds the state of this object to the counters of a checkpoint.
  void add_to(std::vector<double>& counters) const;
  // Must be called after a resume. Returns the counters that add_to() did not add. Older checkpoints have no others.
  std::vector<double> restore(std::vector<double> counters);

 private:
  enum class Zeros : int8_t { unknown, none, some };
  bool on_;
  double beta2_;
  std::vector<Zeros> zeros_;  // zeros of v in each bucket
  int64_t step_ = 0;          // the step of begin()
  // The first step whose gradients are in the second moments; 0: `e` has errors only; none: not known after a resume.
  std::optional<int64_t> since_ = 0;
  bool clears_ = false;  // whether measure() sets `e` to 0 where v = 0
};

// Whether a step in [first, last] equals after + h·(2ʲ − 1) for some j > 0.
bool has_refresh(int64_t after, int64_t h, int64_t first, int64_t last);

}  // namespace godwit
