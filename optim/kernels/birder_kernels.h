// Birder's arithmetic (Birder paper, Algorithm 1) over flat float32 memory: the worker's step, the server's, the
// update. One fused pass each, threaded and SIMD, or a launch on a GPU. IEEE float32 without contraction in the order
// written here, so every instruction set, and a GPU, give the same bits; a sign bit is 1 for +1, value i sits in word
// i/32 at bit i mod 32.
#pragma once
#include <cstdint>

#include "engine/device.h"
#include "engine/half.h"
#include "engine/philox.h"

namespace godwit::birder {

enum class Quantizer {
  random,  // Q(z) = +1 where U < clamp((z + 1)/2, 0, 1), else −1
  sign,    // Q(z) = +1 where z ≥ 0, else −1
};

// Names the random number U of value i: that of element `begin + i` of the whole parameter vector.
struct Draw {
  Quantizer quantizer;
  uint64_t seed;
  uint32_t step;
  Purpose purpose;
  uint32_t sender;
  int64_t begin;
};

// How state is kept; arithmetic is float32. k: the low 8 bits of the value's random word, of which U does not take any.
//   moments   float, or bf16: the bits of |x| plus (256k + 128), cut to their upper half, at most the largest finite
//             value. m and b share k, so |m| ≤ b stays true, and what is below half a unit is not lost: rounding is
//             unbiased but for 2⁻⁹ units.
//   errors    float, or int8: ⌊64e + (k + 0.5)/256⌋ within [−128, 127], in units of 1/64.
// What one worker keeps per value. Optional parts are null.
template <class Moment, class Error>
struct WorkerState {
  Moment* m;
  Moment* b;
  Moment* b_hat;  // T0: b_hat is the moving average, b follows it and, once `b_grows`, is max(b, b_hat)
  Error* e;       // error feedback
  const uint32_t* awake = nullptr;  // value i is asleep where bit i mod 32 of word i/32 is 0; null: none is
};
using Worker = WorkerState<float, float>;

struct WorkerSettings {
  float beta, o, eps;  // o = 1 − β, rounded once
  bool b_grows;
};

// m ← βm + og;  b ← βb + o|g|;  r = m/(b+ε);  z = r + e;  u = Q(z);  e ← z − u;  bits of u to words[0, padded/32).
// Of a value asleep the bit says b > 0, and e ← r. Values [count, padded) are padding: their bits are 0, nothing else
// is touched. False when some g was not finite: then neither the words nor the state may be used.
template <class Moment, class Error>
[[nodiscard]] bool worker_step(const float* g, const WorkerState<Moment, Error>& state, uint32_t* words, int64_t count,
                               int64_t padded, const WorkerSettings& settings, const Draw& draw);

// Sender s's bits are words[s·padded/32, (s+1)·padded/32).  mean = Σu/senders;  z = mean + e;  ū = Q(z);  e ← z − ū
// (e null: z = mean, nothing kept); bits of ū to out[0, padded/32), those of padding 0. Of a value asleep the bit is 1
// where any sender's is, and e stays.
template <class Error>
void server_step(const uint32_t* words, int senders, Error* e, const uint32_t* awake, uint32_t* out, int64_t count,
                 int64_t padded, const Draw& draw);

// x ← keep·x − lr·(±1) on [begin, end), signs by the same indices; keep = 1 − αλ. Values asleep stay.
void update(float* x, const uint32_t* words, const uint32_t* awake, int64_t begin, int64_t end, float keep, float lr);

// awake[i] ← awake[i] | words[i] & ~frozen[i], of `count` words.
inline void wake(Cpu, uint32_t* awake, const uint32_t* words, const uint32_t* frozen, int64_t count) {
  for (int64_t i = 0; i < count; ++i) awake[i] |= words[i] & ~frozen[i];
}

// The same by where memory is. *not_finite, there too, becomes 1 when some g is not finite; a GPU does not set it to 0.
template <class Moment, class Error>
void worker_step(Cpu, const float* g, const WorkerState<Moment, Error>& state, uint32_t* words, int64_t count,
                 int64_t padded, const WorkerSettings& settings, const Draw& draw, uint32_t* not_finite) {
  *not_finite = !worker_step(g, state, words, count, padded, settings, draw);
}
template <class Moment, class Error>
void worker_step(Cuda, const float* g, const WorkerState<Moment, Error>& state, uint32_t* words, int64_t count,
                 int64_t padded, const WorkerSettings& settings, const Draw& draw, uint32_t* not_finite);
template <class Error>
void server_step(Cpu, const uint32_t* words, int senders, Error* e, const uint32_t* awake, uint32_t* out, int64_t count,
                 int64_t padded, const Draw& draw) {
  server_step(words, senders, e, awake, out, count, padded, draw);
}
template <class Error>
void server_step(Cuda, const uint32_t* words, int senders, Error* e, const uint32_t* awake, uint32_t* out,
                 int64_t count, int64_t padded, const Draw& draw);
inline void update(Cpu, float* x, const uint32_t* words, const uint32_t* awake, int64_t begin, int64_t end, float keep,
                   float lr) {
  update(x, words, awake, begin, end, keep, lr);
}
void update(Cuda, float* x, const uint32_t* words, const uint32_t* awake, int64_t begin, int64_t end, float keep,
            float lr);
void wake(Cuda, uint32_t* awake, const uint32_t* words, const uint32_t* frozen, int64_t count);

}  // namespace godwit::birder
