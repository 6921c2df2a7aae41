// Updates of a bucket whose parameters differ in weight decay. Only the optimizers' sources include this header.
#pragma once
#include <utility>
#include <vector>

#include "comm/buckets/bucket.h"
#include "engine/update_each.h"

namespace godwit {

// The elements of a bucket that a rank updates, cut where weight decay changes. `first` applies to [begin, bounds[0]),
// `second` to [bounds[0], bounds[1]), then `first` again, and so on.
struct DecayTurns {
  int64_t begin, end;                // first element, and the element after the last
  double first, second;              // decay of alternating parts
  std::vector<int64_t> bounds = {};  // end of each part except the last

  // The decay is weight_decay. It is 0 for parameters without decay if `decay_norm_and_bias` is false.
  DecayTurns(const Bucket& bucket, double weight_decay, bool decay_norm_and_bias)
      : begin(bucket.owned.begin), end(bucket.owned.end), first(weight_decay), second(0) {
    if (decay_norm_and_bias || weight_decay == 0) return;
    for (const DecayRange& range : decay_ranges(bucket)) {
      if (range.end <= begin || range.begin >= end) continue;
      if (range.begin > begin) bounds.push_back(range.begin);
      else if (!range.decay) std::swap(first, second);
    }
  }
};

// Calls update(begin, end, decay) for each nonempty part of DecayTurns.
template <class Update>
void for_decay_ranges(const Bucket& bucket, double weight_decay, bool decay_norm_and_bias, const Update& update) {
  const DecayTurns turns(bucket, weight_decay, decay_norm_and_bias);
  int64_t begin = turns.begin;
  for (size_t i = 0; i <= turns.bounds.size(); ++i) {
    const int64_t end = i < turns.bounds.size() ? turns.bounds[i] : turns.end;
    if (begin < end) update(begin, end, i % 2 == 0 ? turns.first : turns.second);
    begin = end;
  }
}

// Calls update_each(device, operation, …, make(decay), at…) for bucket.owned, with one launch on a GPU. make() returns
// a formula.
template <class Where, class Make, class... T>
void update_by_decay(Where device, const char* operation, const Bucket& bucket, double weight_decay,
                     bool decay_norm_and_bias, const Make& make, T*... at) {
  const DecayTurns turns(bucket, weight_decay, decay_norm_and_bias);
  if (turns.begin >= turns.end) return;
  update_by_turns(device, operation, turns.begin, turns.end, turns.bounds, make(turns.first), make(turns.second),
                  at...);
}

}  // namespace godwit
