// Philox words of many elements at once, generated with the widest vectors of the processor.
#pragma once
#include <cstdint>

namespace godwit {

// The key for one use of random numbers, without the element. The word of element e is word e mod 4 of Philox with key
// = seed and counter = (e/4, step, purpose, sender).
struct RngKey {
  uint64_t seed;                   // seed of the run
  uint32_t step, purpose, sender;  // words of the counter
};

constexpr int64_t kRandomSlack = 68;  // extra words that the buffer needs

// Generates the words of elements [element, element + count). Returns their start in `buffer`, which needs count +
// kRandomSlack words. Single-threaded; intended for pieces that fit in the L1 cache. Generation is compute-bound, so
// `count` 32-bit values starting at `ahead` are prefetched meanwhile. This range may extend past the end of the array.
const uint32_t* random_words(const RngKey& rng, int64_t element, int64_t count, uint32_t* buffer,
                             const void* ahead = nullptr);

}  // namespace godwit
