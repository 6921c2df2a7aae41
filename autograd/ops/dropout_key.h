// What names the random numbers of one dropout site in one forward pass, so that backward draws the same ones again.
#pragma once
#include "engine/philox.h"
#include "engine/random_words.h"
#include "engine/tensor.h"

namespace godwit {

// Element e of the site's tensor is dropped when U in [0, 1) of its word is below p: Philox with key = seed and counter
// = (e/4, step, Purpose::dropout | site << 8, sender), word e mod 4.
struct DropoutKey {
  uint64_t seed = 0;
  uint32_t step = 0;    // global number of the micro-batch: another one in every forward pass, the same after a resume
  uint32_t site = 0;    // which dropout of the model, below 2²⁴
  uint32_t sender = 0;  // rank
  Tensor counter = {};  // uint32 [1], where x is: takes the place of `step`, for passes recorded as CUDA graphs
  uint32_t purpose() const { return static_cast<uint32_t>(Purpose::dropout) | site << 8; }
  RngKey rng() const {
    const bool here = counter.defined() && !counter.device().is_cuda();
    return {seed, here ? *counter.data<uint32_t>() : step, purpose(), sender};
  }
};

}  // namespace godwit
