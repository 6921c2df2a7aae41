// Birder in plain scalar code, as Algorithm 1 states it: a few lines per role, float32 or (for comparison) float64.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "optim/birder_kernels.h"

namespace godwit::reference {

// Q(z) of global element `element`; T is float for the bits Godwit pins down.
template <class T>
bool quantize(T z, const birder::Draw& draw, int64_t element) {
  if (draw.quantizer == birder::Quantizer::sign) return z >= 0;
  const T p = std::min(std::max((z + 1) * T(0.5), T(0)), T(1));
  return to_unit(random_word(draw.seed, element, draw.step, draw.purpose, draw.sender)) < p;
}

template <class T>
struct WorkerValue {
  T m = 0, b = 0, b_hat = 0, e = 0;
};

struct Options {
  float beta = 0.95f, o = static_cast<float>(1 - 0.95), eps = 1e-8f;
  bool feedback = true;
  int64_t t0 = 0;
};

// m, b and z = r + e of one value; the caller decides the bit and keeps e = z − u.
template <class T>
T worker_ratio(WorkerValue<T>& value, T g, const Options& options, uint32_t step) {
  const T beta = options.beta, o = options.o;
  value.m = (beta * value.m) + (o * g);
  value.b_hat = (beta * value.b_hat) + (o * std::abs(g));
  value.b = options.t0 > 0 && step > options.t0 ? std::max(value.b, value.b_hat) : value.b_hat;
  const T ratio = value.m / (value.b + T(options.eps));
  return options.feedback ? ratio + value.e : ratio;
}

inline bool bit(const std::vector<uint32_t>& words, int64_t i) {
  return words[static_cast<size_t>(i / 32)] >> (i % 32) & 1;
}

inline void set_bit(std::vector<uint32_t>& words, int64_t i, bool value) {
  words[static_cast<size_t>(i / 32)] |= uint32_t{value} << (i % 32);
}

}  // namespace godwit::reference
