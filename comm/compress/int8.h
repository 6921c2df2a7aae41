// Compressors with evenly spaced levels and rounding to nearest: the block's largest magnitude and, for each value, the
// nearest level.
#pragma once
#include <memory>

#include "comm/compress/compressor.h"

namespace godwit {

std::unique_ptr<Compressor> int8_compressor();  // 255 levels
std::unique_ptr<Compressor> int4_compressor();  // 15 levels, as for gradients in ZeRO++ (Wang et al. 2023)

}  // namespace godwit
