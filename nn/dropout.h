// DropoutContext: keys of the dropout masks of one forward pass.
#pragma once
#include "autograd/ops/dropout.h"

namespace godwit {

// Creates the keys for one forward pass in training.
struct DropoutContext {
  uint64_t seed;        // seed of the masks
  uint32_t step;        // global number of the micro-batch; differs in every pass and is restored on resume
  uint32_t rank;        // rank of the worker; each rank draws different masks
  Tensor counter = {};  // replaces `step`: see DropoutKey

  DropoutKey key(int64_t site) const {  // key for dropout `site` of the model
    return {seed, step, static_cast<uint32_t>(site), rank, counter};
  }
};

}  // namespace godwit
