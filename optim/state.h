// Optimizer state with one value per owned parameter; for the optimizers' sources.
#pragma once
#include "engine/data_ptr.h"
#include "optim/optimizer.h"

namespace godwit {

// Zeros for each bucket's owned elements; replicated if each rank owns all of them.
std::vector<StatePart> state_like(const Buckets& buckets, const std::string& name);
// The bucket's state: elements [owned.begin, owned.end).
const Tensor& of_bucket(const std::vector<StatePart>& state, const Bucket& bucket);
// Pointer to the bucket's state, valid for bucket offsets in [owned.begin, owned.end).
template <class T, class Where>
T* by_offset(Where device, const std::vector<StatePart>& state, const Bucket& bucket) {
  return elements<T>(device, of_bucket(state, bucket)) - bucket.owned.begin;
}
template <class T>
T* by_offset(const std::vector<StatePart>& state, const Bucket& bucket) {
  return by_offset<T>(Cpu{}, state, bucket);
}
std::vector<StatePart> joined(std::vector<StatePart> a, const std::vector<StatePart>& b);  // concatenation

}  // namespace godwit
