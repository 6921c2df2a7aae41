// Options for a rank's data loader.
#pragma once
#include <algorithm>

#include "apps/config/config.h"
#include "comm/group.h"
#include "data/loader_options.h"
#include "engine/context.h"

namespace godwit::apps {

// Reads prefetch and workers from `data`. If workers is 0, the loader uses all threads of the rank on a GPU, and at
// most two threads on the CPU.
template <class DataConfig>
data::LoaderOptions loader_options(const CommonConfig& config, const DataConfig& data, const Communicator& comm,
                                   bool train, int64_t eval_batch) {
  return {.batch = train ? config.batch : eval_batch,
          .rank = comm.rank,
          .world = comm.topology.world(),
          .seed = config.seed,
          .train = train,
          .prefetch = data.prefetch,
          .workers = data.workers > 0             ? data.workers
                     : context().device.is_cuda() ? context().threads
                                                  : std::min(2, context().threads)};
}

}  // namespace godwit::apps
