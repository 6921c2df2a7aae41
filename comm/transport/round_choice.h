// RoundChoice: how many rounds a small all-reduce takes. In one round every rank sends all its values to all ranks; two
// rounds, a reduce-scatter and an all-gather, send fewer bytes. The result has the same bits.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace godwit {

// Up to 8 KiB over all ranks one round is faster, beyond 64 KiB two. Between these sizes, the first calls of each power
// of two measure both, and all ranks keep the number of rounds that was faster on their links.
class RoundChoice {
 public:
  // Measured calls per number of rounds; enough to exceed the burst of a link with a token bucket.
  static constexpr int kTrials = 20;

  // Whether the next call takes one round. bytes: of the values of all ranks together.
  bool one_round(int64_t bytes) const;
  // Records a call that took `seconds`. After the last trial of a size, returns the median seconds with one and with
  // two rounds; all ranks then average them and pass the means to decide().
  std::optional<std::array<double, 2>> finished(int64_t bytes, double seconds);
  // Keeps the number of rounds that took less time, for all later calls of this size.
  void decide(int64_t bytes, const std::array<double, 2>& seconds);

 private:
  struct Size {
    int calls = 0;
    std::array<std::vector<double>, 2> seconds = {};  // of the trials, with one and with two rounds
    std::optional<bool> one_round = {};
  };
  static int index(int64_t bytes);  // of a size in sizes_; −1: not tried

  std::array<Size, 3> sizes_;  // up to 16, 32 and 64 KiB
};

}  // namespace godwit
