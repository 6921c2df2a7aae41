// Birder in plain scalar code that follows Algorithm 1. Each role has a few lines. Types: float32, or float64 for
// comparison.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "optim/kernels/birder_kernels.h"

namespace godwit::reference {

// Q(z) of global element `element`. T is float where Godwit specifies the bits.
template <class T>
bool quantize(T z, const birder::QuantizerRng& rng, int64_t element) {
  if (rng.quantizer == birder::Quantizer::sign) return z >= 0;
  const T p = std::min(std::max((z + 1) * T(0.5), T(0)), T(1));
  return to_unit(random_word(rng.seed, element, rng.step, rng.purpose, rng.sender)) < p;
}

template <class T>
struct WorkerValue {
  T m = 0, b = 0, b_hat = 0, e = 0;
};

struct Options {
  float beta = 0.95f, o = static_cast<float>(1 - 0.95), eps = 1e-8f;
  bool feedback = true;
  int64_t t0 = 0;
  bool bf16_moments = false, int8_errors = false;
  int nodes = 1;  // if above 1, ratios are compensated
};

// Moments stored in 16 bits and errors stored in 8 bits. Both are rounded with the low 8 bits of the value's random
// word.
inline float kept_moment(float x, uint32_t word) {
  const uint32_t size = std::bit_cast<uint32_t>(std::abs(x)) + ((word & 255) * 256 + 128);
  const float rounded = std::bit_cast<float>(std::min(size, 0x7F7FFFFFu) / 65536 * 65536);
  return std::signbit(x) ? -rounded : rounded;
}

inline float kept_error(float e, uint32_t word) {
  const float code = std::floor(e * 64 + (static_cast<float>(word & 255) + 0.5f) / 256);
  return std::clamp(code, -128.0f, 127.0f) / 64;
}

template <class T>
T compensated(T q, const Options& options) {
  const T n = T(options.nodes);
  return options.nodes > 1 ? q * std::sqrt(n) / std::sqrt((n - 1) * q * q + 1) : q;
}

// Updates m and b of one value and returns z = r + e. The caller chooses the bit and sets e = z − u.
template <class T>
T worker_ratio(WorkerValue<T>& value, T g, const Options& options, uint32_t step) {
  const T beta = options.beta, o = options.o;
  value.m = (beta * value.m) + (o * g);
  value.b_hat = (beta * value.b_hat) + (o * std::abs(g));
  value.b = options.t0 > 0 && step > options.t0 ? std::max(value.b, value.b_hat) : value.b_hat;
  const T ratio = compensated(value.m / (value.b + T(options.eps)), options);
  return options.feedback ? ratio + value.e : ratio;
}

// Rounds the state to its storage types after e = z − u was set.
inline void keep_short(WorkerValue<float>& value, const Options& options, uint32_t word) {
  if (options.bf16_moments)
    for (float* x : {&value.m, &value.b, &value.b_hat}) *x = kept_moment(*x, word);
  if (options.int8_errors) value.e = kept_error(value.e, word);
}

// One worker step for one value. Returns z and the bit. The bit of a frozen value is 1 once the value has had a
// gradient.
inline std::pair<float, bool> worker_value(WorkerValue<float>& value, float g, const Options& options,
                                           const birder::QuantizerRng& rng, int64_t element, bool active) {
  const float z = worker_ratio(value, g, options, rng.step);
  const bool plus = active ? quantize(z, rng, element) : value.b > 0;
  if (options.feedback)
    value.e = active ? z - (plus ? 1.0f : -1.0f) : compensated(value.m / (value.b + options.eps), options);
  keep_short(value, options, random_word(rng.seed, element, rng.step, rng.purpose, rng.sender));
  return {z, plus};
}

inline bool bit(const std::vector<uint32_t>& words, int64_t i) {
  return words[static_cast<size_t>(i / 32)] >> (i % 32) & 1;
}

inline void set_bit(std::vector<uint32_t>& words, int64_t i, bool value) {
  words[static_cast<size_t>(i / 32)] |= uint32_t{value} << (i % 32);
}

}  // namespace godwit::reference
