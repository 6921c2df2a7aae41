// Represents the first non-finite value of an array as one integer.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/inline.h"

namespace godwit {

// A non-finite value of an array.
struct NotFinite {
  int64_t index;  // index in the array
  double value;  // ∞, −∞, NaN or −NaN
};

// Key of a non-finite value: 4·(n − index) + 2·(1 if negative) + (1 if NaN). The first non-finite value of an array has
// the largest key, so that a GPU finds it with atomicMax. 0 means that there is none.
template <class T>
GODWIT_INLINE inline uint64_t not_finite_key(int64_t n, int64_t index, T value) {
  return static_cast<uint64_t>(n - index) << 2 | static_cast<uint64_t>(std::copysign(T(1), value) < 0) << 1 |
         static_cast<uint64_t>(value != value);
}
// The non-finite value of a nonzero key.
inline NotFinite not_finite_of(uint64_t key, int64_t n) {
  const double value = key & 1 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  return {n - static_cast<int64_t>(key >> 2), std::copysign(value, key & 2 ? -1.0 : 1.0)};
}

}  // namespace godwit
