#include "data/text/pair_merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

#include "engine/check.h"

namespace godwit::data {
namespace {

constexpr size_t kShort = 48;  // number of ids up to which a search for the lowest rank is faster than a queue

}  // namespace

PairMerges::PairMerges(const std::vector<Rule>& rules)
    : slots_(std::bit_ceil(2 * rules.size() + 2)), shift_(64 - std::countr_zero(slots_.size())) {
  check(rules.size() < kNoRank, "tokenizer: ", rules.size(), " merges, expected fewer than 2^32");
  for (size_t rank = 0; rank < rules.size(); ++rank) {
    const Rule& rule = rules[rank];
    Slot& slot = const_cast<Slot&>(find(rule.left, rule.right));
    slot = {pair_of(rule.left, rule.right), static_cast<uint32_t>(rank), rule.merged};
  }
}

inline const PairMerges::Slot& PairMerges::find(int32_t a, int32_t b) const {
  const uint64_t pair = pair_of(a, b);
  for (size_t i = first_slot(pair);; i = (i + 1) & (slots_.size() - 1))
    if (slots_[i].pair == pair || slots_[i].pair == kNoPair) return slots_[i];
}

void PairMerges::apply(std::vector<int32_t>& ids) const {
  if (ids.size() <= kShort) apply_short(ids);
  else apply_long(ids);
}

void PairMerges::apply_short(std::vector<int32_t>& ids) const {
  std::array<uint32_t, kShort> rank;  // of the pair (i, i + 1)
  size_t size = ids.size();
  const auto rank_at = [&](size_t i) { return i + 1 < size ? find(ids[i], ids[i + 1]).rank : kNoRank; };
  for (size_t i = 0; i < size; ++i) rank[i] = rank_at(i);
  while (size > 1) {
    const size_t best = static_cast<size_t>(std::min_element(rank.begin(), rank.begin() + size) - rank.begin());
    if (rank[best] == kNoRank) break;
    ids[best] = find(ids[best], ids[best + 1]).merged;
    --size;
    for (size_t i = best + 1; i < size; ++i) {
      ids[i] = ids[i + 1];
      rank[i] = rank[i + 1];
    }
    rank[best] = rank_at(best);
    if (best > 0) rank[best - 1] = rank_at(best - 1);
  }
  ids.resize(size);
}

void PairMerges::apply_long(std::vector<int32_t>& ids) const {
  struct Merge {
    uint32_t rank, left;                            // index of the left id
    uint64_t pair;  // ids of the pair; if the text has other ids now, the entry is obsolete
    bool operator<(const Merge& other) const {  // the top of the queue has the lowest rank, then the leftmost place
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  check(ids.size() < kNoRank, "tokenizer: a word of ", ids.size(), " bytes, expected fewer than 4 GiB");
  const auto size = static_cast<uint32_t>(ids.size());
  std::vector<uint32_t> next(size), previous(size);  // `size` and 0: none
  std::vector<Merge> candidates;
  const auto candidate = [&](uint32_t left) -> Merge {
    if (next[left] == size) return {kNoRank, left, kNoPair};
    const Slot& slot = find(ids[left], ids[next[left]]);
    return {slot.rank, left, slot.pair};
  };
  for (uint32_t i = 0; i < size; ++i) next[i] = i + 1, previous[i] = i == 0 ? 0 : i - 1;
  for (uint32_t i = 0; i < size; ++i)
    if (const Merge c = candidate(i); c.rank != kNoRank) candidates.push_back(c);
  std::priority_queue<Merge> queue(std::less<Merge>(), std::move(candidates));
  const auto push = [&](uint32_t left) {
    if (const Merge c = candidate(left); c.rank != kNoRank) queue.push(c);
  };
  constexpr int32_t kGone = -1;
  while (!queue.empty()) {
    const Merge top = queue.top();
    queue.pop();
    const uint32_t left = top.left, right = next[left];
    if (ids[left] == kGone || right == size || pair_of(ids[left], ids[right]) != top.pair) continue;
    ids[left] = find(ids[left], ids[right]).merged;
    ids[right] = kGone;
    next[left] = next[right];
    if (next[left] < size) previous[next[left]] = left;
    push(left);
    if (left > 0) push(previous[left]);
  }
  std::erase(ids, kGone);
}

}  // namespace godwit::data
