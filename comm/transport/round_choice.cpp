#include "comm/transport/round_choice.h"

#include <algorithm>

namespace godwit {
namespace {

constexpr int64_t kAlwaysOne = 8 << 10, kAlwaysTwo = 64 << 10;

}  // namespace

int RoundChoice::index(int64_t bytes) {
  if (bytes <= kAlwaysOne || bytes > kAlwaysTwo) return -1;
  int index = 0;
  for (int64_t limit = 2 * kAlwaysOne; bytes > limit; limit *= 2) ++index;
  return index;
}

bool RoundChoice::one_round(int64_t bytes) const {
  if (index(bytes) < 0) return bytes <= kAlwaysOne;
  const Size& size = sizes_[static_cast<size_t>(index(bytes))];
  return size.one_round.value_or(size.calls % 2 == 0);
}

std::optional<std::array<double, 2>> RoundChoice::finished(int64_t bytes, double seconds) {
  if (index(bytes) < 0) return std::nullopt;
  Size& size = sizes_[static_cast<size_t>(index(bytes))];
  if (size.one_round) return std::nullopt;
  size.seconds[static_cast<size_t>(size.calls % 2)].push_back(seconds);
  if (++size.calls != 2 * kTrials) return std::nullopt;
  std::array<double, 2> medians{};
  for (size_t i = 0; i < 2; ++i) {
    std::vector<double>& of = size.seconds[i];
    std::nth_element(of.begin(), of.begin() + kTrials / 2, of.end());
    medians[i] = of[kTrials / 2];
  }
  return medians;
}

void RoundChoice::decide(int64_t bytes, const std::array<double, 2>& seconds) {
  sizes_[static_cast<size_t>(index(bytes))].one_round = seconds[0] <= seconds[1];
}

}  // namespace godwit
