// Optimizer state with one value per owned parameter. Only the optimizers' sources include this header.
#pragma once
#include "engine/data_ptr.h"
#include "optim/optimizer.h"

namespace godwit {

// Zeros for each bucket's owned elements. The state is replicated if each rank owns all elements.
std::vector<StateTensor> state_like(const Buckets& buckets, const std::string& name);
// The state of the bucket: elements [owned.begin, owned.end).
const Tensor& state_of(const std::vector<StateTensor>& state, const Bucket& bucket);
// Pointer to the bucket's state, valid for bucket offsets in [owned.begin, owned.end).
template <class T, class Where>
T* state_ptr(Where device, const std::vector<StateTensor>& state, const Bucket& bucket) {
  return data_ptr<T>(device, state_of(state, bucket)) - bucket.owned.begin;
}
template <class T>
T* state_ptr(const std::vector<StateTensor>& state, const Bucket& bucket) {
  return state_ptr<T>(Cpu{}, state, bucket);
}
std::vector<StateTensor> concat(std::vector<StateTensor> a, const std::vector<StateTensor>& b);  // concatenation

}  // namespace godwit
