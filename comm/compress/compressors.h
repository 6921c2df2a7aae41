// The compressors for block_exchange(). Each has a separate source file.
#pragma once
#include <memory>

#include "comm/compress/compressor.h"

namespace godwit {

// QSGD (Alistarh et al. 2017): the block's L2 norm and, for each value, an integer level in −levels … levels in units
// of norm/levels. Rounding is stochastic, so the expectation is the value. 1 <= levels <= 127.
std::unique_ptr<Compressor> qsgd_compressor(int64_t levels);
// TernGrad (Wen et al. 2017): the block's largest magnitude times −1, 0 or 1. The choice is random, and its expectation
// is the value clipped to ±clip_sigma times the block's root mean square (0: no clipping).
std::unique_ptr<Compressor> terngrad_compressor(double clip_sigma);
// The block's largest magnitude and, for each value, the nearest of 255 evenly spaced levels.
std::unique_ptr<Compressor> int8_compressor();
std::unique_ptr<Compressor> int4_compressor();  // 15 levels, as for gradients in ZeRO++ (Wang et al. 2023)
// 1-bit SGD (Seide et al. 2014): the signs, and the means of the block's values >= 0 and of its values < 0.
std::unique_ptr<Compressor> one_bit_compressor();
// The ⌈density·n⌉ values of largest magnitude in a block of n values, and their indices. 0 < density <= 1.
std::unique_ptr<Compressor> topk_compressor(double density);

}  // namespace godwit
