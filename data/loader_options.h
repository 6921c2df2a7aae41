// What the loaders of images and of text have in common.
#pragma once
#include <cstdint>

#include "data/sampler.h"

namespace godwit::data {

struct LoaderOptions {
  int64_t batch = 1;  // samples of one rank in one batch
  int rank = 0, world = 1;
  uint64_t seed = 0;
  bool train = true;  // shuffled and drawn anew in each epoch; else as it is, every sample once over all ranks
  int prefetch = 2;   // batches held ready or in work, at least 1
  int workers = 1;    // threads that prepare them, at least 1; no bit depends on their number

  SamplerOptions sampling() const {
    return {.batch = batch, .rank = rank, .world = world, .seed = seed, .train = train};
  }
};

}  // namespace godwit::data
