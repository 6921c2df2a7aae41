// Data shared by the attention kernels: memory layout of a head, key mask, dropout.
#pragma once
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "autograd/ops/attention/attention.h"
#include "engine/cuda/launch.h"
#include "engine/random_words.h"

namespace godwit {

inline const uint32_t* counter_of(const DropoutKey& key) {
  return key.counter.defined() ? key.counter.cuda_data<uint32_t>() : nullptr;
}

namespace detail {
constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
}

// The kernel arguments of one call.
struct AttentionView {
  int64_t batch, queries, keys, heads, width;
  int64_t group;                     // number of query heads that share a head of k and v
  int32_t query_stride, key_stride;  // row strides of q, and of k and v; 32 bits save registers
  int64_t past;                      // query i attends keys up to i + past; past = keys if not causal
  double scale;
  double kept;  // 1/(1 - dropout)
  // The kernels for tensor cores read these constants from their arguments, because registers are scarce.
  float keeps;           // `kept` in float32
  float exponent_scale;  // factor from raw products to exponents of 2; not 0, because -infinity marks masked scores
  int32_t dropped;       // an element is dropped if its 24 random bits are below this value; 0 without dropout
  RngKey rng;
  const uint32_t* counter;  // device address of the step, or null
  const uint8_t* mask;      // [batch, keys] or null

  AttentionView(const AttentionTensors& t, const AttentionOptions& o)
      : batch(t.q.dim(0)),
        queries(t.q.dim(1)),
        keys(t.k.dim(1)),
        heads(t.q.dim(2)),
        width(t.q.dim(3)),
        group(heads / t.k.dim(2)),
        query_stride(static_cast<int32_t>(t.stride > 0 ? t.stride : heads * width)),
        key_stride(static_cast<int32_t>(t.stride > 0 ? t.stride : t.k.dim(2) * width)),
        past(o.causal ? keys - queries : keys),
        scale(o.scale.value_or(1 / std::sqrt(static_cast<double>(width)))),
        kept(1 / (1 - o.dropout)),
        keeps(static_cast<float>(kept)),
        exponent_scale(std::max(std::abs(static_cast<float>(scale)) * detail::kLog2E, FLT_MIN)),
        dropped(static_cast<int32_t>(std::ceil(o.dropout * 0x1p24))),
        rng(o.key.rng()),
        counter(counter_of(o.key)),
        mask(t.mask.defined() ? t.mask.cuda_data<uint8_t>() : nullptr) {}
  // End of the range of keys that queries up to number `last` attend.
  __device__ int64_t keys_end(int64_t last) const { return last + past + 1 < keys ? last + past + 1 : keys; }
  // The first query, rounded down to a multiple of `unit`, that attends key `key`.
  __device__ int64_t first_query(int64_t key, int64_t unit) const {
    return key > past ? (key - past) / unit * unit : 0;
  }
  // Reads the step at the point of use, because the kernels have no spare register.
  __device__ uint32_t step() const { return counter ? __ldg(counter) : rng.step; }
};

// One round of philox4x32() with 32-bit products, for which nvcc needs fewer instructions.
__device__ inline void philox_round(uint32_t (&x)[4], uint32_t key0, uint32_t key1) {
#ifdef __CUDA_ARCH__
  uint32_t a_low, a_high, b_low, b_high;
  asm("{ .reg .u64 p; mul.wide.u32 p, %2, 0xD2511F53; mov.b64 {%0, %1}, p; }" : "=r"(a_low), "=r"(a_high) : "r"(x[0]));
  asm("{ .reg .u64 p; mul.wide.u32 p, %2, 0xCD9E8D57; mov.b64 {%0, %1}, p; }" : "=r"(b_low), "=r"(b_high) : "r"(x[2]));
#else
  const uint64_t a = uint64_t{0xD2511F53u} * x[0], b = uint64_t{0xCD9E8D57u} * x[2];
  const auto a_low = static_cast<uint32_t>(a), a_high = static_cast<uint32_t>(a >> 32);
  const auto b_low = static_cast<uint32_t>(b), b_high = static_cast<uint32_t>(b >> 32);
#endif
  x[0] = b_high ^ x[1] ^ key0;
  x[1] = b_low;
  x[2] = a_high ^ x[3] ^ key1;
  x[3] = a_low;
}

// Dropout decisions of elements [4 · quad, 4 · quad + 4) of the probabilities [batch, heads, queries, keys]. Bit k is 1
// if element 4 · quad + k is kept. Uses one Philox call.
__device__ inline uint32_t kept_of_quad(const AttentionView& call, uint32_t quad, uint32_t step) {
  uint32_t words[4] = {quad, step, call.rng.purpose, call.rng.sender};
  const auto key0 = static_cast<uint32_t>(call.rng.seed), key1 = static_cast<uint32_t>(call.rng.seed >> 32);
#pragma unroll
  for (uint32_t round = 0; round < 10; ++round)
    philox_round(words, key0 + round * 0x9E3779B9u, key1 + round * 0xBB67AE85u);
  const uint32_t last =
      (static_cast<uint32_t>(call.dropped) << 8) - 1;  // the largest word whose upper 24 bits are below `dropped`
  uint32_t kept = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) kept |= (words[k] > last ? 1u : 0u) << k;
  return kept;
}
__device__ inline uint32_t kept_of_quad(const AttentionView& call, uint32_t quad) {
  return kept_of_quad(call, quad, call.step());
}

// The rows of one head.
struct AttentionRows {
  int64_t length, first;  // number of rows; first element
  int32_t step;           // row stride in elements
  template <class T>
  __device__ T* row(T* x, int64_t i) const {
    return x + first + i * step;
  }
};

// One query head of one batch entry, with its head of k and v. The number of the head is b · heads + h.
struct AttentionHeadView {
  int64_t b, h;

  __device__ AttentionHeadView(const AttentionView& call, uint32_t number)
      : b(number / static_cast<uint32_t>(call.heads)), h(number % static_cast<uint32_t>(call.heads)) {}
  __device__ AttentionRows queries(const AttentionView& call) const {  // rows in q and its gradient
    return {call.queries, b * call.queries * call.query_stride + h * call.width, call.query_stride};
  }
  __device__ AttentionRows keys(const AttentionView& call) const {  // rows in k, v and their gradients
    const int64_t shared = static_cast<uint32_t>(h) / static_cast<uint32_t>(call.group);
    return {call.keys, b * call.keys * call.key_stride + shared * call.width, call.key_stride};
  }
  __device__ AttentionRows results(const AttentionView& call) const {  // rows in the result and its gradient
    return {call.queries, (b * call.queries * call.heads + h) * call.width,
            static_cast<int32_t>(call.heads * call.width)};
  }
  __device__ int64_t number(const AttentionView& call) const { return b * call.heads + h; }
  __device__ bool attended(const AttentionView& call, int64_t j) const {
    return j < call.keys && (call.mask == nullptr || call.mask[b * call.keys + j] != 0);
  }
};

// blockIdx.x, read again. Values computed from it again occupy no registers in between.
__device__ inline uint32_t block_index_again() {
#ifdef __CUDA_ARCH__
  uint32_t block;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  return block;
#else
  return blockIdx.x;
#endif
}

// The work of a thread block in a launch with `tiles` blocks per unit of `unit` consecutive heads.
struct AttentionPlace {
  AttentionHeadView head;  // first head of the unit
  int64_t tile;
  __device__ AttentionPlace(const AttentionView& call, int64_t tiles, int64_t unit = 1, uint32_t block = blockIdx.x)
      : head(call, block / static_cast<uint32_t>(tiles) * static_cast<uint32_t>(unit)),
        tile(block % static_cast<uint32_t>(tiles)) {}
  // Index of a tile of queries. With causal attention, the blocks with more keys come first.
  __device__ int64_t longest_first(const AttentionView& call, int64_t tiles) const {
    return call.past < call.keys ? tiles - 1 - tile : tile;
  }
};

}  // namespace godwit
