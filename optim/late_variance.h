// LateVariance: second moments of values whose first gradient comes after v has been frozen.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/exchange/error_feedback_all_reduce.h"
#include "optim/warmup.h"

namespace godwit {

// For optimizers that freeze v after step T and set the momentum of values with v = 0 to 0. Such a value needs no error
// feedback, so its place in `e` holds this rank's own second moment since T:  eᵢ ← β2·eᵢ + (1−β2)·gᵢ². A refresh in
// step t exchanges √eᵢ, and v̂ becomes (mean of √eᵢ)²/(1 − β2^(t−T)). With one gradient per value this is the second
// moment of the mean gradient; with gradients of several ranks it is at least that. Values with v > 0 are not changed.
// Without values with v = 0, a bucket's bits and traffic are those of an optimizer without a LateVariance.
class LateVariance {
 public:
  // `on`: whether values with v = 0 get a second moment; otherwise nothing is done. `buckets`: their number.
  LateVariance(bool on, double beta2, int64_t buckets);

  // Call for each bucket in each step after T, with this rank's gradient in bucket.grad, before v may change.
  void measure(const Bucket& bucket, const Tensor& v, const Tensor& e);
  // Call in step T + 1, before measure(), if `e` has been used before T.
  void begin(const Bucket& bucket, const Tensor& v, const Tensor& e);
  // all_reduce.mean(bucket, z, mean, comm, step), which keeps the second moments in `e`.
  void mean(ErrorFeedbackAllReduce& all_reduce, const Bucket& bucket, const Tensor& v, const Tensor& z,
            const Tensor& mean, Communicator& comm, int64_t step);
  // Collective, in a refresh after measure(): the mean over the ranks of bucket.grad where v > 0 and of √eᵢ elsewhere.
  // Values of `e` with v = 0 begin anew. Change v after this call only.
  Tensor exchange(const Bucket& bucket, const Tensor& v, const Tensor& e, Group& world, DenseWire wire,
                  const std::string& purpose);
  // Whether v of a value of the bucket is 0; equal on all ranks. False if not `on`.
  bool any(const Bucket& bucket, const Tensor& v);
  void forget();  // v of all buckets has changed

 private:
  enum class Zeros : int8_t { unknown, none, some };
  bool on_;
  double beta2_;
  std::vector<Zeros> zeros_;  // of v, of each bucket
};

// v̂ of a value is the squared result of LateVariance::exchange() divided by this. `steps`: since T.
double late_correction(double beta2, int64_t steps);
// Whether a step of [first, last] is after + h·(2ʲ − 1) for a j > 0.
bool has_refresh(int64_t after, int64_t h, int64_t first, int64_t last);

}  // namespace godwit
