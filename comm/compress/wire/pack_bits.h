// Packs small integers that are stored in bytes into fewer bits, and unpacks them.
#pragma once
#include <cstdint>

#include "engine/vector_loop.h"

namespace godwit {

// Packs the low four bits of each byte: the two bytes of pairs[i] become one byte to[i]. from_nibbles() unpacks 8
// values.
GODWIT_INLINE inline void pack_nibbles(const uint16_t* __restrict pairs, int64_t n, uint8_t* __restrict to) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint8_t>((pairs[i] & 15) | (pairs[i] >> 4 & 0xF0));
}
// Unpacks the low 32 bits of v, which hold 8 values of four bits, to the low four bits of each byte.
GODWIT_INLINE inline uint64_t from_nibbles(uint64_t v) {
  v = (v | v << 16) & 0x0000FFFF0000FFFF;
  v = (v | v << 8) & 0x00FF00FF00FF00FF;
  return (v | v << 4) & 0x0F0F0F0F0F0F0F0F;
}

// Packs the low two bits of each of eight bytes into 16 bits. from_pairs() is the inverse.
GODWIT_INLINE inline uint64_t pairs(uint64_t v) {
  v &= 0x0303030303030303;
  v = (v | v >> 6) & 0x000F000F000F000F;
  v = (v | v >> 12) & 0x000000FF000000FF;
  return (v | v >> 24) & 0xFFFF;
}
// Unpacks the low 16 bits of v, which hold 8 values of two bits, to the low two bits of each byte.
GODWIT_INLINE inline uint64_t from_pairs(uint64_t v) {
  v = (v | v << 24) & 0x000000FF000000FF;
  v = (v | v << 12) & 0x000F000F000F000F;
  return (v | v << 6) & 0x0303030303030303;
}

}  // namespace godwit
