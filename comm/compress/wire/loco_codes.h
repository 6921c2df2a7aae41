// LoCo's arithmetic (LoCo paper, Algorithm 1, equations 1–8) on values that share a scale, on one thread. IEEE float32 without
// contraction in the order written here: the same bits by any vectors.
#pragma once
#include <cstdint>

#include "engine/random_words.h"

namespace godwit::loco {

// A code of p bits stands for code/s, code in −2^(p−1) … 2^(p−1)−1; of one bit, for ±1/(2s).
constexpr float lowest(int bits) { return -static_cast<float>(1 << (bits - 1)); }
constexpr float highest(int bits) { return static_cast<float>(1 << (bits - 1)) - 1; }

struct Settings {
  int bits;         // 1, 4 or 8
  float gain_new;   // β, of the new error
  float gain_old;   // 1 − β, rounded once
  float clip;       // of each |g|; infinite: not clipped
  bool random;      // rounding of what is kept of the error: down after a random number in [0, 1) was added, or to nearest even
  bool reset;       // nothing is kept
};

struct Scales {
  float code;                        // s
  float error_before, error_after;  // s_e of the error that is there, and of the one that is left
};

struct Counts {
  int64_t saturated = 0, zero = 0;  // codes that were clamped; that are 0. Of one bit none
  bool finite = true;               // all g; else neither codes nor errors may be used
};

// a = e/s_e;  h = clip(g) + a;  code = clamp(round(h·s));  ẽ = (1−β)·a + β·(h − decoded);  e ← round(ẽ·s_e) in −128 … 127.
// Rounding is to nearest even but where Settings say. Codes go to words[(bits·n + 31) / 32], code j to bit (bits·j) mod 32 of word
// bits·j / 32, in two's complement; of one bit, 1 where h >= 0. `draws` and `element`, the first value's, name random numbers.
Counts encode(const float* g, int8_t* e, int64_t n, const Scales& scales, const Settings& settings, const Draws& draws,
              int64_t element, uint32_t* words);

// sums[n] of the codes (one bit: of ±1) of all senders; sender i's begin at words + i·stride.
void sum_codes(const uint32_t* words, int64_t stride, int senders, int bits, int64_t n, int32_t* sums);

}  // namespace godwit::loco
