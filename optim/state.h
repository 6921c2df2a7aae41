// Optimizer state of one value per parameter that a rank owns; for the optimizers' sources.
#pragma once
#include "engine/data_ptr.h"
#include "optim/optimizer.h"

namespace godwit {

// Zeros over what the rank owns of each bucket; the same on all ranks where that is everything.
std::vector<StatePart> state_like(const Buckets& buckets, const std::string& name);
// The tensor of one bucket: of its elements [owned.begin, owned.end).
const Tensor& of_bucket(const std::vector<StatePart>& state, const Bucket& bucket);
// The same, to be indexed by the bucket's offsets in [owned.begin, owned.end).
template <class T, class Where>
T* by_offset(Where device, const std::vector<StatePart>& state, const Bucket& bucket) {
  return elements<T>(device, of_bucket(state, bucket)) - bucket.owned.begin;
}
template <class T>
T* by_offset(const std::vector<StatePart>& state, const Bucket& bucket) {
  return by_offset<T>(Cpu{}, state, bucket);
}
std::vector<StatePart> joined(std::vector<StatePart> a, const std::vector<StatePart>& b);

}  // namespace godwit
