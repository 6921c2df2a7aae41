// DropoutKey: the key of the random numbers of one dropout site in one forward pass. Backward regenerates the mask from
// the key.
#pragma once
#include "engine/philox.h"
#include "engine/random_words.h"
#include "engine/tensor.h"

namespace godwit {

// Element e of the site's tensor is dropped if the number U in [0, 1) of its random word is below p. The random word is
// word e mod 4 of Philox with key = seed and counter = (e/4, step, Purpose::dropout | site << 8, sender).
struct DropoutKey {
  uint64_t seed = 0;  // seed of the run
  // Global number of the micro-batch. It differs in every forward pass and is restored on resume.
  uint32_t step = 0;
  uint32_t site = 0;    // index of the dropout in the model, below 2²⁴
  uint32_t sender = 0;  // rank
  // uint32 [1] on the device of x; replaces `step` in passes captured as CUDA graphs.
  Tensor counter = {};
  // The counter's third word: Purpose::dropout and the site.
  uint32_t purpose() const { return static_cast<uint32_t>(Purpose::dropout) | site << 8; }
  RngKey rng() const {  // key of the pass; `step` is read from `counter` if that tensor is on the CPU
    const bool here = counter.defined() && !counter.device().is_cuda();
    return {seed, here ? *counter.data<uint32_t>() : step, purpose(), sender};
  }
};

}  // namespace godwit
