// What replicas of a module do together, beside exchanging gradients.
#pragma once
#include <memory>

#include "comm/group.h"
#include "nn/module.h"

namespace godwit::nn {

// Collective: replaces every buffer (running statistics, which each rank moves by its own batches) by its mean over the
// ranks, as phase "buffers". Call it before evaluating or saving.
void average_buffers(const Module& module, Group& group);

// Batch norm over the batches of all ranks (SyncBN): every BatchNorm2d of the module takes mean and variance, and the
// sums its backward needs, over all ranks of the group, as phase "batch_norm": [1 + 2c] and [2c] float64 per layer and
// rank. Losses are means on each rank, gradients are averaged by the exchange: as PyTorch's SyncBatchNorm. `group` is
// one of the computing thread's own, comm.compute, since gradients are exchanged meanwhile.
void synchronize_batch_norm(Module& module, std::shared_ptr<Group> group);

}  // namespace godwit::nn
