// Philox words of many elements at once, by the widest vectors of the machine.
#pragma once
#include <cstdint>

namespace godwit {

// What names the draws of one use but for the element: word e mod 4 of Philox with key = seed and counter = (e/4, step,
// purpose, sender) is element e's.
struct RngKey {
  uint64_t seed;
  uint32_t step, purpose, sender;
};

constexpr int64_t kRandomSlack = 68;  // words of room behind those asked for

// The words of elements [element, element + count); buffer has room for count + kRandomSlack. Returns where in it they
// begin. One thread; meant for pieces that stay in its first-level cache. Drawing keeps a core busy and memory idle:
// meanwhile `count` 32-bit values from `ahead` on are asked for, which may lie beyond an array's end.
const uint32_t* random_words(const RngKey& rng, int64_t element, int64_t count, uint32_t* buffer,
                             const void* ahead = nullptr);

}  // namespace godwit
