// Birder's arithmetic (Birder paper, Algorithm 1) on flat float32 memory: worker step, server step and update. On the
// CPU, each is one fused pass, multithreaded and vectorized. On a GPU, each is one launch. All operations are IEEE
// float32 without contraction, in the order written here, so all instruction sets and GPUs give the same bits. A sign
// bit is 1 for +1. Value i is bit i mod 32 of word i/32.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/buckets/not_finite.h"
#include "engine/device.h"
#include "engine/half.h"
#include "engine/philox.h"

// Kernels of Birder.
namespace godwit::birder {

enum class Quantizer {  // Q: maps a ratio to a sign
  random,  // Q(z) = +1 if U < clamp((z + 1)/2, 0, 1), otherwise −1
  sign,    // Q(z) = +1 if z ≥ 0, otherwise −1
};
inline std::vector<std::string> choices_of(Quantizer) { return {"random", "sign"}; }

// The key of the random number U of value i, which is element `begin + i` of the whole parameter vector.
struct QuantizerRng {
  Quantizer quantizer;  // random or sign
  uint64_t seed;        // seed of the run
  uint32_t step;        // number of the step
  Purpose purpose;      // worker_sign or server_sign
  uint32_t sender;      // index of the worker or server
  int64_t begin;        // global offset of value 0
};

// One worker's state: arrays with one element per value (`active`: one bit per value). Arrays that the options do not
// use are null. Arithmetic is in float32. 16-bit moments and 8-bit errors are rounded with k, the low 8 bits of the
// value's random word, which U does not use:
//   bf16   the bits of |x| plus (256k + 128), truncated to the upper half, at most the largest finite value.
//          Rounding is unbiased up to 2⁻⁹ units, so values below half a unit are not lost. m and b share k, so |m| ≤ b
//          still holds.
//   int8   ⌊64e + (k + 0.5)/256⌋ clamped to [−128, 127], in units of 1/64
template <class Moment, class Error>
struct WorkerState {
  Moment* m;  // moving average of g
  Moment* b;  // moving average of |g|
  Moment* b_hat;  // with T0: moving average of |g|; then b ← b_hat, or b ← max(b, b_hat) once `b_grows`
  Error* e;       // error feedback
  const uint32_t* active = nullptr;  // value i is frozen if bit i mod 32 of word i/32 is 0; null: no value is frozen
};

// Constants of a step.
struct WorkerSettings {
  float beta, o, eps;  // o = 1 − β, rounded once
  bool b_grows;        // b ← max(b, b_hat)
  int nodes = 1;       // n in the formula below
};

// Algorithm 1, lines 5–9:
//   m ← βm + og;  b ← βb + o|g|;  q = m/(b+ε);  r = q√n/√((n−1)q² + 1);  z = r + e;  u = Q(z);  e ← z − u
// The bits of u are written to words[0, padded/32).
// - With n = 1, r = q.
// - With e null, there is no error feedback: z = r.
// - For a frozen value, the bit is (b > 0) and e ← r.
// - Values [count, padded) are padding: they are not accessed, and their bits are 0.
// Returns false if some g is not finite. words and state are then unusable.
template <class Moment, class Error>
[[nodiscard]] bool worker_step(const float* g, const WorkerState<Moment, Error>& state, uint32_t* words, int64_t count,
                               int64_t padded, const WorkerSettings& settings, const QuantizerRng& rng);

// Algorithm 1, lines 12–13. The bits of sender s are words[s·padded/32, (s+1)·padded/32):
//   mean = Σu/senders;  z = mean + e;  ū = Q(z);  e ← z − ū
// The bits of ū are written to out[0, padded/32). Bits of padding are 0.
// - With e null, there is no error feedback: z = mean.
// - For a frozen value, the bit is 1 if any sender's bit is 1, and e is unchanged.
template <class Error>
void server_step(const uint32_t* words, int senders, Error* e, const uint32_t* active, uint32_t* out, int64_t count,
                 int64_t padded, const QuantizerRng& rng);

// x ← keep·x − lr·(±1) on [begin, end), with signs at the same indices; keep = 1 − αλ. Frozen values are unchanged.
void update(float* x, const uint32_t* words, const uint32_t* active, int64_t begin, int64_t end, float keep, float lr);

// Activates values: active[i] ← active[i] | (words[i] & ~frozen[i]) for `count` words.
inline void activate(Cpu, uint32_t* active, const uint32_t* words, const uint32_t* frozen, int64_t count) {
  for (int64_t i = 0; i < count; ++i) active[i] |= words[i] & ~frozen[i];
}

// Overloads that dispatch on the device. *not_finite, on this device, becomes not_finite_key() of the first non-finite
// g, or 0 if all are finite.
template <class Moment, class Error>
void worker_step(Cpu, const float* g, const WorkerState<Moment, Error>& state, uint32_t* words, int64_t count,
                 int64_t padded, const WorkerSettings& settings, const QuantizerRng& rng, uint64_t* not_finite) {
  *not_finite = 0;
  if (worker_step(g, state, words, count, padded, settings, rng)) return;
  const int64_t i = std::find_if(g, g + count, [](float value) { return !std::isfinite(value); }) - g;
  *not_finite = not_finite_key(count, i, g[i]);
}
template <class Moment, class Error>
void worker_step(Cuda, const float* g, const WorkerState<Moment, Error>& state, uint32_t* words, int64_t count,
                 int64_t padded, const WorkerSettings& settings, const QuantizerRng& rng, uint64_t* not_finite);
// Overload that dispatches on the device.
template <class Error>
void server_step(Cpu, const uint32_t* words, int senders, Error* e, const uint32_t* active, uint32_t* out,
                 int64_t count, int64_t padded, const QuantizerRng& rng) {
  server_step(words, senders, e, active, out, count, padded, rng);
}
template <class Error>
void server_step(Cuda, const uint32_t* words, int senders, Error* e, const uint32_t* active, uint32_t* out,
                 int64_t count, int64_t padded, const QuantizerRng& rng);
// Overloads that dispatch on the device. keep is `first` on [begin, bounds[0]), `second` on [bounds[0], bounds[1]),
// then `first` again, and so on.
void update(Cpu, float* x, const uint32_t* words, const uint32_t* active, int64_t begin, int64_t end,
            const std::vector<int64_t>& bounds, float first, float second, float lr);
void update(Cuda, float* x, const uint32_t* words, const uint32_t* active, int64_t begin, int64_t end,
            const std::vector<int64_t>& bounds, float first, float second, float lr);
void activate(Cuda, uint32_t* active, const uint32_t* words, const uint32_t* frozen, int64_t count);  // as on the CPU

}  // namespace godwit::birder
