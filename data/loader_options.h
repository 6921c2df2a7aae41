// Options shared by the image and text loaders.
#pragma once
#include <cstdint>

#include "data/sampler.h"

namespace godwit::data {

// Batch size, shard, order and number of threads of a loader.
struct LoaderOptions {
  int64_t batch = 1;  // samples of one rank in one batch
  int rank = 0, world = 1;
  uint64_t seed = 0;
  bool train = true;  // true: shuffle and augment in each epoch; false: each sample once over all ranks, in order
  int prefetch = 2;   // number of batches in flight or ready, at least 1
  int workers = 1;    // number of loader threads, at least 1; results do not depend on it

  SamplerOptions sampling() const {  // the options that a Sampler reads
    return {.batch = batch, .rank = rank, .world = world, .seed = seed, .train = train};
  }
};

}  // namespace godwit::data
