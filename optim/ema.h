// Ema: a moving average of the weights, and of the buffers beside them, to evaluate and save.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/parallel/bucket.h"

namespace godwit {

// After step t = 1, 2, …:  a ← a + (1 − d)·(x − a),  d = min(decay, (1 + t) / (10 + t)): the start, of which little
// should remain, is forgotten fast. One flat tensor per bucket, of the parameters' type; equal on replicas, and the
// same bits for any bucket size, order of buckets and number of threads.
class Ema {
 public:
  // Starts from the present values. `buckets` must outlive it. decay is in [0, 1); buffers are float32 or float64.
  Ema(Buckets& buckets, std::vector<Tensor> buffers, double decay);

  // Once the parameters that the rank owns are those after the step. Of others no average is kept:
  void update(const Bucket& bucket, int64_t step);
  // calls complete(bucket, averages) for each bucket, to bring those of sharded parameters here before a swap.
  void complete(const std::function<void(const Bucket&, const Tensor&)>& complete) const;
  void update_buffers(int64_t step);
  // Exchanges the averages with the values, in place, so that the model computes with the averages; again, and all is
  // as it was, to the bit.
  void swap();

 private:
  double weight(int64_t step) const;  // 1 − d

  Buckets& buckets_;
  std::vector<Tensor> buffers_;
  std::vector<Tensor> averages_, buffer_averages_;
  double decay_;
};

namespace detail {
// averages ← averages + weight·(values − averages)
void follow(Cpu, const Tensor& values, const Tensor& averages, double weight);
void follow(Cuda, const Tensor& values, const Tensor& averages, double weight);
void exchange(Cpu, const Tensor& x, const Tensor& y);
void exchange(Cuda, const Tensor& x, const Tensor& y);
}  // namespace detail

}  // namespace godwit
