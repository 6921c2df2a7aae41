// Splits a bucket's update into ranges of equal weight decay and threads over them; for the optimizers' sources.
#pragma once
#include <algorithm>
#include <type_traits>

#include "comm/parallel/bucket.h"
#include "engine/parallel.h"

namespace godwit {

// Calls update(begin, end, decay) on disjoint ranges that cover bucket.owned; `decay` is weight_decay, or 0 for
// parameters without decay if `decay_norm_and_bias` is false. Cpu: on several threads, each range cut at multiples of
// 32 from its beginning. Cuda: whole ranges, one after another.
template <class Where, class F>
void for_decay_ranges(Where, const Bucket& bucket, double weight_decay, bool decay_norm_and_bias, F&& update) {
  constexpr int64_t kGrain = 1 << 15;
  const auto spread = [&](int64_t first, int64_t last, double decay) {
    if constexpr (std::is_same_v<Where, Cuda>) {
      if (first < last) update(first, last, decay);
    } else {
      parallel_for(
          last - first, kGrain, [&](int64_t b, int64_t e) { update(first + b, first + e, decay); }, 32);
    }
  };
  if (decay_norm_and_bias || weight_decay == 0) return spread(bucket.owned.begin, bucket.owned.end, weight_decay);
  for (const DecayRange& range : decay_ranges(bucket)) {
    const int64_t begin = std::max(range.begin, bucket.owned.begin), end = std::min(range.end, bucket.owned.end);
    if (begin < end) spread(begin, end, range.decay ? weight_decay : 0);
  }
}
template <class F>
void for_decay_ranges(const Bucket& bucket, double weight_decay, bool decay_norm_and_bias, F&& update) {
  for_decay_ranges(Cpu{}, bucket, weight_decay, decay_norm_and_bias, update);
}

}  // namespace godwit
