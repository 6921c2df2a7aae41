// The compressed exchanges that are no BlockCodec, one source each.
#pragma once
#include <memory>

#include "comm/exchange/exchange.h"

namespace godwit {

// signSGD with majority vote (Bernstein et al. 2019): the gradient becomes +1 where at least half of the ranks have a
// gradient >= 0, else −1. Signs to the owners, who count them bit-sliced; votes to all. Buckets are padded to a
// multiple of 32·ranks.
std::unique_ptr<Exchange> sign_sgd(const Buckets& buckets, const Communicator& comm);

struct RandomKOptions {
  double density = 0.01;   // ⌈density·n⌉ of a block of n
  int64_t block_size = 0;  // values, within a parameter; 0: each parameter is a block
  bool feedback = true;    // worker error feedback; without it values are scaled by n/k, and the mean is unbiased
};
// Random-k: coordinates that all ranks draw alike, anew in each step, so that their values can be all-reduced.
std::unique_ptr<Exchange> random_k(const RandomKOptions& options, const Buckets& buckets, uint64_t seed);

struct PowerSgdOptions {
  int64_t rank = 4;
  bool feedback = true;  // e ← z − P·Qᵀ, with the worker's own Q
};
// PowerSGD (Vogels et al. 2019, algorithms 1 and 2): parameters of two and more dimensions as matrices [first, rest].
// P = mean of M·Q, orthogonalised; Q = mean of Mᵀ·P, which begins the next step; the mean gradient is P·Qᵀ. What has
// one dimension, or would not be smaller that way, is all-reduced as it is.
std::unique_ptr<Exchange> power_sgd(const PowerSgdOptions& options, const Buckets& buckets, uint64_t seed);

}  // namespace godwit
