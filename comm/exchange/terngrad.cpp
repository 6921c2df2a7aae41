#include "comm/exchange/terngrad.h"

#include <algorithm>
#include <cmath>

#include "comm/compress/scaled_compressor.h"
#include "comm/compress/wire/block_math.h"
#include "comm/exchange/shared_options.h"
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

void TernGradOptions::describe(OptionList& list) {
  add_block_size(list, block_size);
  add_reply(list, reply);
  list.add("clip_sigma", clip_sigma, "limit of a value, in root mean squares of its block; 0: no limit", kNotNegative);
}

const ExchangeMethod& terngrad_method() {
  static const ExchangeMethod method{
      .name = "terngrad",
      .help = "-1, 0 or 1 times each block's largest magnitude, chosen stochastically",
      .paper =
          "Wen et al., TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning, "
          "arXiv:1705.07878, 2017",
      .bytes = "2 bits per parameter and one float32 per block to the owners; one float32 per parameter back",
      .defaults = TernGradOptions{},
      .make = [](const AnyOptions& options, const ExchangeInputs& in) {
        const TernGradOptions& o = options.as<TernGradOptions>();
        return block_exchange(terngrad_compressor(o.clip_sigma),
                              {.name = "terngrad", .block_size = o.block_size, .reply = o.reply}, in.buckets, in.comm,
                              in.seed);
      }};
  return method;
}

}  // namespace godwit
