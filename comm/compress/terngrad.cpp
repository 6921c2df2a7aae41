#include <algorithm>
#include <cmath>

#include "comm/compress/compressors.h"
#include "comm/compress/scaled_compressor.h"
#include "comm/compress/wire/block_math.h"
#include "engine/check.h"

namespace godwit {
namespace {

// Values beyond the scale are sent as ±1, that is, clipped.
class TernGrad : public ScaledCompressor {
 public:
  explicit TernGrad(double clip_sigma) : ScaledCompressor(1, true), clip_sigma_(clip_sigma) {}
  CodeFormat format() const override {
    return LevelFormat{LevelFormat::Scale::clipped, 1, true, clip_sigma_, "terngrad"};
  }

 private:
  float scale(const float* x, int64_t n) const override {
    if (clip_sigma_ == 0) return block::largest_magnitude(x, n);
    const block::Sizes sizes = block::sizes(x, n);
    const double sigma = std::sqrt(sizes.squares / static_cast<double>(n));
    return std::min(sizes.largest, static_cast<float>(clip_sigma_ * sigma));  // both non-finite if a value is
  }

  double clip_sigma_;
};

}  // namespace

std::unique_ptr<Compressor> terngrad_compressor(double clip_sigma) {
  check(std::isfinite(clip_sigma) && clip_sigma >= 0, "terngrad: clip_sigma is ", clip_sigma,
        "; it must be finite and positive, or 0 for no clipping");
  return std::make_unique<TernGrad>(clip_sigma);
}

}  // namespace godwit
