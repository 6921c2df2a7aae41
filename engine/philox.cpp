#include "engine/philox.h"

#include <cmath>
#include <numbers>

#include "engine/check.h"

namespace godwit {

RandomStream::RandomStream(uint64_t seed, Purpose purpose, uint32_t a, uint32_t b)
    : counter_{0, a, static_cast<uint32_t>(purpose), b},
      key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}

uint32_t RandomStream::next() {
  if (used_ == 4) {
    words_ = philox4x32(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return words_[static_cast<size_t>(used_++)];
}

uint32_t RandomStream::below(uint32_t n) {
  check(n > 0, "RandomStream::below: n is 0, expected at least 1");
  // Lemire's method: the low half of word·n is uniform, except for the first 2³² mod n values, which are rejected.
  uint64_t product = uint64_t{next()} * n;
  for (const uint32_t biased = -n % n; static_cast<uint32_t>(product) < biased;) product = uint64_t{next()} * n;
  return static_cast<uint32_t>(product >> 32);
}

double RandomStream::normal() {
  const double u = (next() + 1.0) * 0x1p-32, v = next() * 0x1p-32;  // u in (0, 1]
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace godwit
