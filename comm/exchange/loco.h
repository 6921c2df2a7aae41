// LoCo (LoCo paper, Algorithm 1): gradients of 1, 4 or 8 bits, with what rounding lost kept in 8 bits and fed back.
#pragma once
#include <memory>

#include "comm/exchange/exchange.h"

namespace godwit {

// Reads bits, scale, block_size (scale auto), error_scale, error_rounding, error_gain_new, reset_every, clip_element,
// saturation_limit, and of sharding whether means stay with their owners. Formulas: docs/methods/exchanges_loco.md.
std::unique_ptr<Exchange> make_loco(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm,
                                    uint64_t seed);

}  // namespace godwit
