// LoCo (LoCo paper, Algorithm 1): gradients in 1, 4 or 8 bits, with error feedback stored in 8 bits.
#pragma once
#include <memory>

#include "comm/exchange/exchange.h"

namespace godwit {

// Reads bits, scale, block_size (for scale auto), error_scale, error_rounding, error_gain_new, reset_every,
// clip_element, saturation_limit, and sharding (zero2: means stay with their owners). Formulas:
// docs/methods/exchanges_loco.md.
std::unique_ptr<Exchange> make_loco(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm,
                                    uint64_t seed);

}  // namespace godwit
