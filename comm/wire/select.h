// The places of large values.
#pragma once
#include <bit>
#include <cstdint>

namespace godwit {

// Of finite numbers the one of larger magnitude has the larger bits without the sign.
inline uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFF; }

constexpr int64_t kPlacesSlack = 16;

// places: i of x[n] with magnitude_bits(x[i]) >= least, ascending; room for n + kPlacesSlack. Returns how many. One thread.
int64_t places_of_at_least(const float* x, int64_t n, uint32_t least, uint32_t* places);

}  // namespace godwit
