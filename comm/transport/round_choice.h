// RoundChoice: the number of rounds that a small all-reduce takes. In one round, every rank sends all its values to all
// ranks. Two rounds, a reduce-scatter and an all-gather, send fewer bytes. Both give the same bits.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace godwit {

// Up to 8 KiB over all ranks, one round is used. Beyond 64 KiB, two rounds are used. Between these sizes, the first
// calls of each power of two measure both variants, and all ranks keep the faster one.
class RoundChoice {
 public:
  // Number of measured calls for each variant. It is large enough to exceed the burst of a link with a token bucket.
  static constexpr int kTrials = 20;

  // Whether the next call takes one round. bytes: size of the values of all ranks together.
  bool one_round(int64_t bytes) const;
  // Records a call that took `seconds`. After the last trial of a size, returns the median seconds with one round and
  // with two rounds. All ranks then average these medians and pass the means to decide().
  std::optional<std::array<double, 2>> finished(int64_t bytes, double seconds);
  // Keeps the faster variant for all later calls of this size.
  void decide(int64_t bytes, const std::array<double, 2>& seconds);

 private:
  struct Size {
    int calls = 0;
    std::array<std::vector<double>, 2> seconds = {};  // seconds of the trials, with one round and with two rounds
    std::optional<bool> one_round = {};
  };
  static int index(int64_t bytes);  // index of a size in sizes_; −1: not measured

  std::array<Size, 3> sizes_;  // sizes up to 16, 32 and 64 KiB
};

}  // namespace godwit
