#include "optim/state.h"

namespace godwit {

std::vector<StateTensor> state_like(const Buckets& buckets, const std::string& name) {
  std::vector<StateTensor> state;
  for (const Bucket& bucket : buckets)
    state.push_back({name, bucket.begin + bucket.owned.begin,
                     Tensor::zeros({bucket.owned.numel()}, bucket.param.dtype()), bucket.shards.empty()});
  return state;
}

const Tensor& state_of(const std::vector<StateTensor>& state, const Bucket& bucket) {
  const size_t i = static_cast<size_t>(bucket.index);
  check(i < state.size() && state[i].begin == bucket.begin + bucket.owned.begin &&
            state[i].values.numel() == bucket.owned.numel(),
        "optimizer: bucket ", bucket.index, " was not passed to the constructor; use the same buckets");
  return state[i].values;
}

std::vector<StateTensor> concat(std::vector<StateTensor> a, const std::vector<StateTensor>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace godwit
