// Ema: exponential moving average of the weights and of the module's buffers, for evaluation and checkpoints.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/buckets/bucket.h"
#include "comm/state_tensor.h"
#include "engine/inline.h"

namespace godwit {

namespace detail {

template <class T>
struct FollowUpdate {
  T weight;
  GODWIT_INLINE void operator()(int64_t, T& average, T x) const { average += weight * (x - average); }
};

template <class T>
struct Swap {
  GODWIT_INLINE void operator()(int64_t, T& x, T& y) const {
    const T before = x;
    x = y;
    y = before;
  }
};

}  // namespace detail

// After step t = 1, 2, …:  a ← a + (1 − d)·(x − a),  d = min(decay, (1 + t) / (10 + t)), so that the initial weights
// are forgotten quickly. With local steps, the averages are updated only when the replicas are synchronized: the update
// after k steps has the weight 1 − dᵏ. The averages of a bucket are one flat tensor of the parameters' type. They are
// equal on replicas, and bit-exact for any bucket size, bucket order and thread count.
class Ema {
 public:
  // Starts from the current values. `buckets` must outlive this object. decay is in [0, 1); buffers are float32 or
  // float64.
  Ema(Buckets& buckets, std::vector<Tensor> buffers, double decay);

  // Updates the averages of the values that this rank owns. Must be called after the optimizer has updated the values.
  // A second call for a step has no effect.
  void update(const Bucket& bucket, int64_t step);
  // Calls complete(bucket, averages) for each bucket. `complete` must gather the averages of sharded parameters. To be
  // called before swap().
  void complete(const std::function<void(const Bucket&, const Tensor&)>& complete) const;
  void update_buffers(int64_t step);  // updates the averages of all buffers; must be called once per step
  // Swaps the averages with the values of parameters and buffers in place. A second call restores the original state
  // exactly.
  void swap();
  void continue_after(int64_t step);  // call after loading averages that were saved after `step`
  std::vector<StateTensor> state() const;  // checkpoint state "ema": the averages of the values that this rank owns
  const std::vector<Tensor>& buffer_averages() const { return buffer_averages_; }  // in the order of the buffers

 private:
  double weight(int64_t step, int64_t steps = 1) const;  // 1 − d^steps

  Buckets& buckets_;
  std::vector<Tensor> buffers_;
  std::vector<Tensor> averages_, buffer_averages_;
  std::vector<int64_t> updated_;  // step of the last update of each bucket
  double decay_;
};

}  // namespace godwit
