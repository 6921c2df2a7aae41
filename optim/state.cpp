#include "optim/state.h"

namespace godwit {

std::vector<OptimizerState> state_like(const Buckets& buckets, const std::string& name) {
  std::vector<OptimizerState> state;
  for (const Bucket& bucket : buckets) {
    state.push_back({name, bucket.begin, Tensor::zeros({bucket.numel}, bucket.param.dtype()), true});
  }
  return state;
}

const Tensor& of_bucket(const std::vector<OptimizerState>& state, const Bucket& bucket) {
  const size_t i = static_cast<size_t>(bucket.index);
  check(i < state.size() && state[i].begin == bucket.begin && state[i].values.numel() == bucket.numel,
        "optimizer: bucket ", bucket.index, " is not one it was made for");
  return state[i].values;
}

std::vector<OptimizerState> joined(std::vector<OptimizerState> a, const std::vector<OptimizerState>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace godwit
