#include <cmath>

#include "comm/compress/compressors.h"
#include "comm/compress/scaled_compressor.h"
#include "comm/compress/wire/block_math.h"
#include "engine/check.h"

namespace godwit {
namespace {

class Qsgd : public ScaledCompressor {
 public:
  explicit Qsgd(int levels) : ScaledCompressor(levels, true) {}
  CodeFormat format() const override { return LevelFormat{LevelFormat::Scale::norm, levels(), true, 0, "qsgd"}; }

 private:
  float scale(const float* x, int64_t n) const override {
    const block::Sizes sizes = block::sizes(x, n);
    const float norm = static_cast<float>(std::sqrt(sizes.squares));
    check(std::isfinite(norm) || !std::isfinite(sizes.largest),
          "qsgd: the norm of a block of gradients overflows float32; lower the learning rate");
    return norm;
  }
};

}  // namespace

std::unique_ptr<Compressor> qsgd_compressor(int64_t levels) {
  check(levels >= 1 && levels <= 127, "qsgd: levels is ", levels,
        "; expected 1 (2 bits per value), 2 to 7 (4 bits) or 8 to 127 (8 bits)");
  return std::make_unique<Qsgd>(static_cast<int>(levels));
}

}  // namespace godwit
