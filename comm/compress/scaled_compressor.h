// Base class of the compressors that send one scale per block and an integer level per value (comm/compress/levels.h).
#pragma once
#include <cmath>

#include "comm/compress/compressor.h"
#include "comm/compress/levels.h"

namespace godwit {

// Compressor with levels −levels … levels. Rounding is stochastic if `random`, otherwise to nearest.
class ScaledCompressor : public Compressor {
 public:
  ScaledCompressor(int levels, bool random) : levels_(levels), random_(random) {}  // 1 <= levels <= 127

  int64_t payload_words(int64_t n) const override { return scaled_words(n, levels_); }
  void encode(const float* x, int64_t n, const BlockRng& rng, uint32_t* payload) const override {
    encode_finite(x, n, rng, payload);
  }
  bool encode_finite(const float* x, int64_t n, const BlockRng& rng, uint32_t* payload) const override {
    const float own = scale(x, n);
    if (!std::isfinite(own)) return false;
    encode_scaled(x, n, own, levels_, random_ ? &rng : nullptr, payload);
    return true;
  }
  void decode(const uint32_t* payload, int64_t n, float* x) const override { decode_scaled(payload, n, levels_, x); }

 protected:
  int levels() const { return levels_; }  // maximum magnitude of a level

 private:
  virtual float scale(const float* x, int64_t n) const = 0;  // must be non-finite if a value is non-finite

  int levels_;
  bool random_;
};

}  // namespace godwit
