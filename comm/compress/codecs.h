// The compressors that block_exchange() works with, one source each.
#pragma once
#include <memory>

#include "comm/compress/compressor.h"

namespace godwit {

// QSGD (Alistarh et al. 2017): the block's L2 norm and, for each value, one of the levels −levels … levels of it, drawn
// so that the expectation is the value.
std::unique_ptr<BlockCodec> qsgd_codec(int64_t levels);
// TernGrad (Wen et al. 2017): the block's largest magnitude times −1, 0 or 1, drawn so that the expectation is the
// value clipped to ±clip_sigma times the block's root mean square (0: not clipped).
std::unique_ptr<BlockCodec> terngrad_codec(double clip_sigma);
// The block's largest magnitude and, for each value, the nearest of 255 levels.
std::unique_ptr<BlockCodec> int8_codec();
std::unique_ptr<BlockCodec> int4_codec();  // of 15 levels, as ZeRO++ (Wang et al. 2023) sends gradients
// 1-bit SGD (Seide et al. 2014): the signs, the mean of the block's values >= 0 and that of the others.
std::unique_ptr<BlockCodec> one_bit_codec();
// The largest ⌈density·n⌉ values of a block of n, and their places.
std::unique_ptr<BlockCodec> topk_codec(double density);

}  // namespace godwit
