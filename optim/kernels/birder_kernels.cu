#include "optim/kernels/birder_kernels.h"

#include <bit>
#include <cmath>

#include "engine/cuda/philox.h"
#include "engine/cuda/update.h"

namespace godwit::birder {
namespace {

constexpr int kQuad = 4;  // values per thread: 16 bytes of float32, and the words of one Philox counter

template <class T>
using Values = godwit::detail::Pack<T, kQuad>;

// A thread's values [i, i + 4) of [0, count). `whole`: all four exist and are aligned to their total size.
struct FourValues {
  int64_t i, count;
  bool whole;
};

template <class T>
__device__ Values<T> load(const T* from, const FourValues& at) {
  if (at.whole) return godwit::detail::load_pack<kQuad>(from + at.i, 0);
  Values<T> values{};
  for (int k = 0; k < kQuad && at.i + k < at.count; ++k) values.values[k] = from[at.i + k];
  return values;
}

template <class T>
__device__ void store(T* to, const FourValues& at, const Values<T>& values) {
  if (at.whole) return godwit::detail::store_pack(to + at.i, values);
  for (int k = 0; k < kQuad && at.i + k < at.count; ++k) to[at.i + k] = values.values[k];
}

__device__ float value_of(float x) { return x; }
__device__ float value_of(bf16 x) { return x; }
__device__ float value_of(int8_t code) { return static_cast<float>(code) * (1.0f / 64); }

// Stores x in `to`, rounded by the low 8 bits of the random word.
__device__ void keep(float x, uint32_t, float& to) { to = x; }

__device__ void keep(float x, uint32_t word, bf16& to) {
  const auto bits = std::bit_cast<uint32_t>(x), sign = bits & 0x80000000u;
  const uint32_t rounded = (bits ^ sign) + ((word & 255) * 256 + 128);
  to.bits = static_cast<uint16_t>(((rounded < 0x7F7FFFFFu ? rounded : 0x7F7FFFFFu) | sign) >> 16);
}

__device__ void keep(float x, uint32_t word, int8_t& to) {
  const float code = x * 64.0f + (static_cast<float>(word & 255) + 0.5f) * (1.0f / 256);
  const float within = code > -128.0f ? code < 127.0f ? code : 127.0f : -128.0f;
  to = static_cast<int8_t>(std::floor(within));
}

// U = k/2²⁴ with integer k: U < clamp((z + 1)/2, 0, 1) is the same as k < (z + 1)·2²³; the multiplication is exact.
__device__ bool quantize(float z, Quantizer quantizer, uint32_t word) {
  return quantizer == Quantizer::sign ? z >= 0 : static_cast<float>(word >> 8) < (z + 1.0f) * 0x1p23f;
}

__device__ float plus_minus_one(bool plus) { return plus ? 1.0f : -1.0f; }

__device__ uint32_t bits_at(const uint32_t* words, int64_t i) { return words[i / 32] >> (i % 32); }

// Combines the four bits of each of eight consecutive threads to a word, which the first of them stores.
__device__ void store_bits(uint32_t bits, int64_t quad, int64_t quads, uint32_t* words) {
  bits <<= kQuad * (threadIdx.x % 8);
  for (int other = 1; other < 8; other *= 2) bits |= __shfl_xor_sync(0xFFFFFFFFu, bits, other);
  if (threadIdx.x % 8 == 0 && quad < quads) words[quad / 8] = bits;
}

__device__ FourWords random_of(const QuantizerRng& rng, bool needed, int64_t i) {
  if (!needed) return {};
  return four_words({rng.seed, rng.step, static_cast<uint32_t>(rng.purpose), rng.sender}, rng.begin + i);
}

// Calls f(values, quad) for each quad of the thread. Whole warps stay together, so f is also called for quads beyond
// the end.
template <class F>
__device__ void for_quads(int64_t count, int64_t quads, bool aligned, const F& f) {
  for (int64_t quad = grid_thread(); quad - threadIdx.x % 32 < quads; quad += grid_threads()) {
    const int64_t i = kQuad * quad;
    f(FourValues{i, count, aligned && i + kQuad <= count}, quad);
  }
}

// Records the first non-finite value of four.
__device__ void report(const Values<float>& gradient, const FourValues& at, uint64_t* not_finite) {
  for (int k = kQuad - 1; k >= 0; --k)
    if (!(std::abs(gradient.values[k]) <= std::numeric_limits<float>::max()))
      atomicMax(reinterpret_cast<unsigned long long*>(not_finite),
                static_cast<unsigned long long>(not_finite_key(at.count, at.i + k, gradient.values[k])));
}

// Algorithm 1, lines 5–9. One thread per four values.
template <class Moment, class Error>
__global__ void worker_kernel(const float* g, WorkerState<Moment, Error> state, uint32_t* words, int64_t count,
                              int64_t quads, WorkerSettings settings, QuantizerRng rng, bool aligned,
                              uint64_t* not_finite) {
  const bool rounds = sizeof(Moment) < 4 || sizeof(Error) < 4;
  for_quads(count, quads, aligned, [&](const FourValues& at, int64_t quad) {
    uint32_t bits = 0;
    if (at.i < count) {
      const FourWords random = random_of(rng, rounds || rng.quantizer == Quantizer::random, at.i);
      const uint32_t active = state.active ? bits_at(state.active, at.i) : 0xFu;
      const Values<float> gradient = load(g, at);
      Values<Moment> m = load(state.m, at), b = load(state.b, at), b_hat{};
      Values<Error> e{};
      if (state.b_hat) b_hat = load(state.b_hat, at);
      if (state.e) e = load(state.e, at);
      uint32_t bad = 0;
      for (int k = 0; k < kQuad; ++k) {
        const uint32_t word = random.words[k];
        const float x = gradient.values[k], size = std::abs(x);
        bad |= static_cast<uint32_t>(std::bit_cast<uint32_t>(size) >= 0x7F800000u);
        const float momentum = settings.beta * value_of(m.values[k]) + settings.o * x;
        keep(momentum, word, m.values[k]);
        float average = settings.beta * value_of(state.b_hat ? b_hat.values[k] : b.values[k]) + settings.o * size;
        if (state.b_hat) {
          keep(average, word, b_hat.values[k]);
          const float before = value_of(b.values[k]);
          if (settings.b_grows && before > average) average = before;
        }
        keep(average, word, b.values[k]);
        float ratio = momentum / (average + settings.eps);
        if (settings.nodes > 1) {
          const float n = static_cast<float>(settings.nodes);
          ratio = ratio * std::sqrt(n) / std::sqrt((n - 1) * ratio * ratio + 1.0f);
        }
        const float z = state.e ? ratio + value_of(e.values[k]) : ratio;
        const bool plus = quantize(z, rng.quantizer, word), is_active = active >> k & 1;
        if (state.e) keep(is_active ? z - plus_minus_one(plus) : ratio, word, e.values[k]);
        if (at.i + k < count) bits |= static_cast<uint32_t>(is_active ? plus : average > 0) << k;
      }
      store(state.m, at, m);
      store(state.b, at, b);
      if (state.b_hat) store(state.b_hat, at, b_hat);
      if (state.e) store(state.e, at, e);
      if (bad) report(gradient, at, not_finite);
    }
    store_bits(bits, quad, quads, words);
  });
}

// Number of senders with a 1, for each of four values; sums of up to 255 senders are counted in the bytes of a word.
__device__ void count_ones(const uint32_t* words, int senders, int64_t stride, int64_t i, int (&ones)[kQuad]) {
  for (int s = 0; s < senders;) {
    uint32_t bytes = 0;
    for (const int end = senders < s + 255 ? senders : s + 255; s < end; ++s)
      bytes += ((bits_at(words + s * stride, i) & 0xFu) * 0x204081u) & 0x01010101u;
    for (int k = 0; k < kQuad; ++k) ones[k] += static_cast<int>(bytes >> (8 * k) & 255);
  }
}

// Algorithm 1, lines 12–13. One thread per four values.
template <class Error>
__global__ void server_kernel(const uint32_t* words, int senders, Error* errors, const uint32_t* active_words,
                              uint32_t* out, int64_t count, int64_t quads, QuantizerRng rng, bool aligned) {
  for_quads(count, quads, aligned, [&](const FourValues& at, int64_t quad) {
    uint32_t bits = 0;
    if (at.i < count) {
      const FourWords random = random_of(rng, sizeof(Error) < 4 || rng.quantizer == Quantizer::random, at.i);
      const uint32_t active = active_words ? bits_at(active_words, at.i) : 0xFu;
      int ones[kQuad] = {};
      count_ones(words, senders, quads / 8, at.i, ones);
      Values<Error> e{};
      if (errors) e = load(errors, at);
      for (int k = 0; k < kQuad; ++k) {
        const float mean = static_cast<float>(2 * ones[k] - senders) / static_cast<float>(senders);
        const float z = errors ? mean + value_of(e.values[k]) : mean;
        const bool plus = quantize(z, rng.quantizer, random.words[k]), is_active = active >> k & 1;
        if (errors && is_active) keep(z - plus_minus_one(plus), random.words[k], e.values[k]);
        if (at.i + k < count) bits |= static_cast<uint32_t>(is_active ? plus : ones[k] > 0) << k;
      }
      if (errors) store(errors, at, e);
    }
    store_bits(bits, quad, quads, out);
  });
}

struct Update {
  const uint32_t *words, *active;
  float keep, lr;
  __device__ void operator()(int64_t i, float& x) const {
    if (active && !(bits_at(active, i) & 1)) return;
    x = keep * x - (bits_at(words, i) & 1 ? lr : -lr);
  }
};

struct Activate {
  __device__ void operator()(int64_t, uint32_t& active, uint32_t word, uint32_t frozen) const {
    active |= word & ~frozen;
  }
};

}  // namespace

template <class Moment, class Error>
void worker_step(Cuda device, const float* g, const WorkerState<Moment, Error>& state, uint32_t* words, int64_t count,
                 int64_t padded, const WorkerSettings& settings, const QuantizerRng& rng, uint64_t* not_finite) {
  const bool aligned = aligned_to<16>(g, state.m, state.b, state.b_hat, state.e);
  cuda_check(cudaMemsetAsync(not_finite, 0, sizeof *not_finite, device.stream), "cudaMemsetAsync");
  launch(device, "birder's worker step", worker_kernel<Moment, Error>, blocks_for(device, padded / kQuad), kBlock, g,
         state, words, count, padded / kQuad, settings, rng, aligned, not_finite);
}

template <class Error>
void server_step(Cuda device, const uint32_t* words, int senders, Error* e, const uint32_t* active, uint32_t* out,
                 int64_t count, int64_t padded, const QuantizerRng& rng) {
  launch(device, "birder's server step", server_kernel<Error>, blocks_for(device, padded / kQuad), kBlock, words,
         senders, e, active, out, count, padded / kQuad, rng, aligned_to<16>(e));
}

#define GODWIT_WORKER(Moment, Error)                                                                            \
  template void worker_step(Cuda, const float*, const WorkerState<Moment, Error>&, uint32_t*, int64_t, int64_t, \
                            const WorkerSettings&, const QuantizerRng&, uint64_t*);
GODWIT_WORKER(float, float)
GODWIT_WORKER(float, int8_t)
GODWIT_WORKER(bf16, float)
GODWIT_WORKER(bf16, int8_t)
#undef GODWIT_WORKER
template void server_step(Cuda, const uint32_t*, int, float*, const uint32_t*, uint32_t*, int64_t, int64_t,
                          const QuantizerRng&);
template void server_step(Cuda, const uint32_t*, int, int8_t*, const uint32_t*, uint32_t*, int64_t, int64_t,
                          const QuantizerRng&);

void update(Cuda device, float* x, const uint32_t* words, const uint32_t* active, int64_t begin, int64_t end,
            const std::vector<int64_t>& bounds, float first, float second, float lr) {
  update_by_turns(device, "birder's update", begin, end, bounds, Update{words, active, first, lr},
                  Update{words, active, second, lr}, x);
}

void activate(Cuda device, uint32_t* active, const uint32_t* words, const uint32_t* frozen, int64_t count) {
  update_each(device, "birder's mask", 0, count, Activate{}, active, words, frozen);
}

}  // namespace godwit::birder
