// Options shared by the image and text loaders.
#pragma once
#include <cstdint>

#include "data/sampler.h"

namespace godwit::data {

// Batch size, shard, order and threads of a loader.
struct LoaderOptions {
  int64_t batch = 1;  // samples of one rank in one batch
  int rank = 0, world = 1;
  uint64_t seed = 0;
  bool train = true;  // true: shuffle and augment anew in each epoch; false: each sample once over all ranks, in order
  int prefetch = 2;   // batches in flight or ready, at least 1
  int workers = 1;    // loader threads, at least 1; results do not depend on their number

  SamplerOptions sampling() const {  // the part that a Sampler reads
    return {.batch = batch, .rank = rank, .world = world, .seed = seed, .train = train};
  }
};

}  // namespace godwit::data
