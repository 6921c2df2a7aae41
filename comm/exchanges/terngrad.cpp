#include <algorithm>
#include <cmath>

#include "comm/exchanges/codecs.h"
#include "comm/wire/block_math.h"
#include "comm/wire/levels.h"
#include "engine/check.h"

namespace godwit {
namespace {

class TernGrad : public BlockCodec {
 public:
  explicit TernGrad(double clip_sigma) : clip_sigma_(clip_sigma) {}
  int64_t words(int64_t n) const override { return scaled_words(n, 1); }
  // What exceeds the scale becomes ±1: clipped.
  void encode(const float* x, int64_t n, const BlockDraw& draw, uint32_t* code) const override {
    float scale = block::largest_magnitude(x, n);
    if (clip_sigma_ > 0) {
      const double sigma = std::sqrt(block::sum_of_squares(x, n) / static_cast<double>(n));
      scale = std::min(scale, static_cast<float>(clip_sigma_ * sigma));
    }
    encode_scaled(x, n, scale, 1, &draw, code);
  }
  void decode(const uint32_t* code, int64_t n, float* x) const override { decode_scaled(code, n, 1, x); }
  CodeFormat format() const override {
    return LevelFormat{LevelFormat::Scale::clipped, 1, true, clip_sigma_, "terngrad"};
  }

 private:
  double clip_sigma_;
};

}  // namespace

std::unique_ptr<BlockCodec> terngrad_codec(double clip_sigma) {
  check(std::isfinite(clip_sigma) && clip_sigma >= 0, "terngrad: clip_sigma is ", clip_sigma,
        "; it must be finite and positive, or 0 for no clipping");
  return std::make_unique<TernGrad>(clip_sigma);
}

}  // namespace godwit
