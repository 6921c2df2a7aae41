// Splits a bucket's update into ranges of equal weight decay; for the optimizers' sources.
#pragma once
#include <algorithm>

#include "comm/parallel/bucket.h"

namespace godwit {

// Calls update(begin, end, decay) on disjoint ranges that cover bucket.owned, one after another; `decay` is
// weight_decay, or 0 for parameters without decay if `decay_norm_and_bias` is false.
template <class F>
void for_decay_ranges(const Bucket& bucket, double weight_decay, bool decay_norm_and_bias, F&& update) {
  const auto& [owned_begin, owned_end] = bucket.owned;
  if (decay_norm_and_bias || weight_decay == 0) {
    if (owned_begin < owned_end) update(owned_begin, owned_end, weight_decay);
    return;
  }
  for (const DecayRange& range : decay_ranges(bucket)) {
    const int64_t begin = std::max(range.begin, owned_begin), end = std::min(range.end, owned_end);
    if (begin < end) update(begin, end, range.decay ? weight_decay : 0);
  }
}

}  // namespace godwit
