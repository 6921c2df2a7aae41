// The compressed exchanges that do not use a BlockCodec, one source file each.
#pragma once
#include <memory>

#include "comm/exchange/exchange.h"

namespace godwit {

// signSGD with majority vote (Bernstein et al. 2019): the gradient becomes +1 where at least half of the ranks have a
// gradient >= 0, otherwise −1. Signs go to the owners, which count them bit-sliced; the votes go to all ranks. Buckets
// must be padded to a multiple of 32·ranks.
std::unique_ptr<Exchange> sign_sgd(const Buckets& buckets, const Communicator& comm);

struct RandomKOptions {
  double density = 0.01;   // ⌈density·n⌉ values of a block of n are sent
  int64_t block_size = 0;  // values, within a parameter; 0: one block per parameter
  bool feedback = true;    // worker error feedback; without it, values are scaled by n/k so that the mean is unbiased
};
// Random-k: in each step all ranks draw the same random coordinates, so that their values can be all-reduced.
std::unique_ptr<Exchange> random_k(const RandomKOptions& options, const Buckets& buckets, uint64_t seed);

struct PowerSgdOptions {
  int64_t rank = 4;
  bool feedback = true;  // error feedback: e ← z − P·Qᵀ with the worker's own Q
};
// PowerSGD (Vogels et al. 2019, algorithms 1 and 2). Parameters with two or more dimensions are matrices M [first,
// rest]: P = mean of M·Q, orthonormalized; Q = mean of Mᵀ·P, the start of the next step; the mean gradient is P·Qᵀ.
// Other parameters, and those that this would not shrink, are all-reduced uncompressed.
std::unique_ptr<Exchange> power_sgd(const PowerSgdOptions& options, const Buckets& buckets, uint64_t seed);

}  // namespace godwit
