#include "optim/state.h"

namespace godwit {

std::vector<StatePart> state_like(const Buckets& buckets, const std::string& name) {
  std::vector<StatePart> state;
  for (const Bucket& bucket : buckets)
    state.push_back({name, bucket.begin + bucket.owned.begin,
                     Tensor::zeros({bucket.owned.numel()}, bucket.param.dtype()), bucket.shards.empty()});
  return state;
}

const Tensor& of_bucket(const std::vector<StatePart>& state, const Bucket& bucket) {
  const size_t i = static_cast<size_t>(bucket.index);
  check(i < state.size() && state[i].begin == bucket.begin + bucket.owned.begin &&
            state[i].values.numel() == bucket.owned.numel(),
        "optimizer: bucket ", bucket.index, " is not one it was made for");
  return state[i].values;
}

std::vector<StatePart> joined(std::vector<StatePart> a, const std::vector<StatePart>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace godwit
