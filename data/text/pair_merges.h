// PairMerges: applies the merge rules of a BPE tokenizer to one word.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace godwit::data {

// The rules of a tokenizer. Thread-safe.
class PairMerges {
 public:
  // A rule that replaces two adjacent ids by one.
  struct Rule {
    int32_t left, right, merged;  // ids
  };
  // Rules in order of rank; the first rule has the highest priority. If several rules have the same pair, the last one
  // is used.
  explicit PairMerges(const std::vector<Rule>& rules);

  // Replaces the leftmost pair of the lowest rank until no rule applies. Takes O(n log n) time for n ids.
  void apply(std::vector<int32_t>& ids) const;

 private:
  struct Slot {
    uint64_t pair = kNoPair;
    uint32_t rank = kNoRank;
    int32_t merged = -1;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};
  static uint64_t pair_of(int32_t a, int32_t b) {
    return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
  }
  size_t first_slot(uint64_t pair) const { return static_cast<size_t>((pair * 0x9e3779b97f4a7c15u) >> shift_); }
  const Slot& find(int32_t a, int32_t b) const;  // returns an empty slot if no rule applies
  void apply_short(std::vector<int32_t>& ids) const;
  void apply_long(std::vector<int32_t>& ids) const;

  std::vector<Slot> slots_;  // hash table with open addressing, at most half full
  int shift_;
};

}  // namespace godwit::data
