// The size of buckets for bucket.mib=auto.
#pragma once
#include <string>

#include "apps/config/config.h"
#include "apps/train/task.h"
#include "optim/data_parallel.h"

namespace godwit::apps {

// Collective. Measures the exchange and update of `options`, and the backward pass of the first batch. Returns the
// size with the shortest predicted step, as bucket.mib. On rank 0, which writes the run directory, config.bucket.mib
// gets this size, and config.notices the measurements. Model and byte counts are unchanged; the task must begin an
// epoch before its next batch.
std::string pick_bucket_size(CommonConfig& config, Task& task, Communicator& comm, const DataParallelOptions& options);

}  // namespace godwit::apps
