// What replicas of a module do together, beside exchanging gradients.
#pragma once
#include "comm/group.h"
#include "nn/module.h"

namespace godwit::nn {

// Collective: replaces every buffer (running statistics, which each rank moves by its own batches) by its mean over the
// ranks, as phase "buffers". Call it before evaluating or saving.
void average_buffers(const Module& module, Group& group);

}  // namespace godwit::nn
