// Collective operations of module replicas, apart from the gradient exchange.
#pragma once
#include <memory>

#include "comm/group.h"
#include "nn/module.h"

namespace godwit::nn {

// Collective: replaces every buffer (running statistics, which each rank updates from its own batches) by its mean over
// the ranks, as phase "buffers". Call before evaluating or saving.
void average_buffers(const Module& module, Group& group);

// Synchronized batch norm (SyncBN): every BatchNorm2d computes mean, variance and the sums of its backward over all
// ranks of the group, as phase "batch_norm": [1 + 2c] and [2c] float64 per layer and rank. As in PyTorch's
// SyncBatchNorm, losses are means per rank and the exchange averages gradients. `group` must be for the compute thread
// only (comm.compute), because gradients are exchanged concurrently.
void synchronize_batch_norm(Module& module, std::shared_ptr<Group> group);

}  // namespace godwit::nn
