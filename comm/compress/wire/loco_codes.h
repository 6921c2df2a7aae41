// LoCo's arithmetic (LoCo paper, Algorithm 1, equations 1–8) on values that share a scale, single-threaded. All
// operations are IEEE float32 without contraction, in the order written here, so every vector width gives the same
// bits.
#pragma once
#include <cstdint>

#include "engine/random_words.h"

// Kernels of the exchange loco.
namespace godwit::loco {

// A p-bit code c in −2^(p−1) … 2^(p−1)−1 means c/s. A 1-bit code means ±1/(2s).
constexpr float lowest(int bits) { return -static_cast<float>(1 << (bits - 1)); }
constexpr float highest(int bits) { return static_cast<float>(1 << (bits - 1)) - 1; }  // largest code, 2^(p−1) − 1

// Options of a pass.
struct Settings {
  int bits;         // 1, 4 or 8
  float gain_new;   // β, the weight of the new error
  float gain_old;   // 1 − β, rounded once
  float clip;       // limit of |g|; infinity: no limit
  bool random;      // rounds the error stochastically: adds a random number in [0, 1) and rounds down
  bool reset;       // sets the error to 0
};

// Scales of a block in one step.
struct Scales {
  float code;                        // s
  float error_before, error_after;  // s_e of the stored error, and of the new error
};

// Result of encode().
struct Counts {
  int64_t saturated = 0, zero = 0;  // number of clamped codes; number of codes that are 0; both stay 0 for 1 bit
  bool finite = true;               // whether all g are finite; if not, codes and errors are unusable
};

// Encodes n values:
//   a = e/s_e;  h = clip(g) + a;  code = clamp(round(h·s));
//   ẽ = (1−β)·a + β·(h − decoded);  e ← round(ẽ·s_e), limited to −128 … 127.
// Rounding is to nearest even, except for e with settings.random. With settings.reset, e ← 0. A 1-bit code is 1 if h >=
// 0. Code j is at bit (bits·j) mod 32 of word bits·j / 32 of words[(bits·n + 31) / 32], in two's complement. `rng` and
// `element`, the global offset of the first value, key the random numbers.
Counts encode(const float* g, int8_t* e, int64_t n, const Scales& scales, const Settings& settings, const RngKey& rng,
              int64_t element, uint32_t* words);

// sums[n] = sums over all senders of the codes, or of ±1 for 1 bit. The codes of sender i begin at words + i·stride.
void sum_codes(const uint32_t* words, int64_t stride, int senders, int bits, int64_t n, int32_t* sums);

}  // namespace godwit::loco
