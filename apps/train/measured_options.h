// Options that a run picks by measurement: bucket.mib=auto and exchange.wire=auto.
#pragma once
#include "apps/config/config.h"
#include "apps/train/task.h"
#include "optim/data_parallel.h"

namespace godwit::apps {

bool picks_wire(const ExchangeConfig& exchange);  // whether exchange.wire is auto
bool measures(const CommonConfig& config);        // whether exchange.wire or bucket.mib is auto

// Collective. Sets options.buckets and replaces exchange.wire=auto in options.exchange. If measures(), measures the
// exchange and update of `options` and the backward pass of the first batch, and picks the values with the shortest
// predicted step. Rank 0 also stores these values in `config` and adds the measurements to config.notices. Model and
// byte counts are unchanged. The task must begin an epoch before its next batch.
void pick_measured_options(CommonConfig& config, Task& task, Communicator& comm, DataParallelOptions& options);

}  // namespace godwit::apps
