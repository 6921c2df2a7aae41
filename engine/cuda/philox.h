// Philox words of four consecutive elements, computed by one thread.
#pragma once
#include "engine/cuda/launch.h"
#include "engine/philox.h"
#include "engine/random_words.h"

namespace godwit {

struct FourWords {
  uint32_t words[4];
};

// The words of elements [element, element + 4); `element` need not be a multiple of 4.
__device__ inline FourWords four_words(const RngKey& rng, int64_t element) {
  const auto block = [&](int64_t index) {
    return philox4x32({static_cast<uint32_t>(index), rng.step, rng.purpose, rng.sender},
                      {static_cast<uint32_t>(rng.seed), static_cast<uint32_t>(rng.seed >> 32)});
  };
  const auto first = block(element >> 2);
  const int shift = static_cast<int>(element & 3);
  if (shift == 0) return {{first[0], first[1], first[2], first[3]}};
  const auto second = block((element >> 2) + 1);
  if (shift == 1) return {{first[1], first[2], first[3], second[0]}};
  if (shift == 2) return {{first[2], first[3], second[0], second[1]}};
  return {{first[3], second[0], second[1], second[2]}};
}

}  // namespace godwit
