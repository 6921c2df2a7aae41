// Collective operations on module replicas, in addition to the gradient exchange.
#pragma once
#include <memory>

#include "comm/group.h"
#include "nn/module.h"

namespace godwit::nn {

// Collective: replaces every buffer by its mean over the ranks, in phase "buffers". Buffers are running statistics,
// which each rank updates from its batches. Call before evaluating or saving.
void average_buffers(const Module& module, Group& group);

// Collective: copies the buffers of rank 0 to all ranks, in phase "buffers".
void broadcast_buffers(const Module& module, Group& group);

// Synchronized batch norm (SyncBN): every BatchNorm2d computes mean, variance and the sums of its backward over all
// ranks of the group, in phase "batch_norm". Each rank sends [1 + 2c] and [2c] float64 per layer to each other rank. As
// in PyTorch's SyncBatchNorm, losses are means per rank and the exchange averages gradients. `group` must be used only
// by the compute thread (comm.compute), because gradients are exchanged concurrently.
void synchronize_batch_norm(Module& module, std::shared_ptr<Group> group);

}  // namespace godwit::nn
