// Compressor: encodes blocks of float32 values as 32-bit words and decodes them. To add a compressor, derive a class in
// a new file and pass it to block_exchange() (comm/exchange/block_exchange.h). block_exchange() adds sending,
// averaging, error feedback and state. docs/extending.md has a complete example.
#pragma once
#include <cstdint>
#include <variant>

#include "engine/random_words.h"

namespace godwit {

// Random numbers for a block's values. They are keyed by the values' global offset, the step and the sender, and
// therefore do not depend on bucket sizes and thread counts.
struct BlockRng {
  RngKey key;       // seed, step, purpose and sender
  int64_t element;  // global offset of the block's first value

  // Random words of the values [i, i + count). `buffer` needs room for count + kRandomSlack words. to_unit() of
  // engine/philox.h maps a word to [0, 1). Request one or two thousand words at a time, so that they stay in the cache.
  // `ahead`: address of `count` float32 values to prefetch, usually the values that are encoded next; null: none.
  const uint32_t* words(int64_t i, int64_t count, uint32_t* buffer, const float* ahead = nullptr) const {
    return random_words(key, element + i, count, buffer, ahead);
  }
};

// Formats that the GPU kernels support.
struct LevelFormat {  // see comm/compress/levels.h: a scale, and integers −levels … levels
  enum class Scale { largest, norm, clipped };  // unit of the levels
  Scale scale;        // largest magnitude; L2 norm; or largest magnitude, but at most clip_sigma · root mean square
  int levels;         // largest level, 1 to 127
  bool random;        // stochastic rounding; otherwise to nearest
  double clip_sigma;  // for Scale::clipped; 0: no clipping
  const char* name;   // prefix of error messages
};
struct OneBitFormat {};  // see comm/exchange/one_bit_sgd.cpp
struct LargestFormat {   // see comm/exchange/topk.cpp
  double density;        // sends ⌈density · n⌉ of n values
};
using CodeFormat = std::variant<std::monostate, LevelFormat, OneBitFormat, LargestFormat>;  // monostate: no kernels

// A compressor must be stateless, because blocks are encoded concurrently and in any order.
class Compressor {
 public:
  virtual ~Compressor() = default;
  virtual int64_t payload_words(int64_t n) const = 0;  // payload length for n >= 1 values
  // Encodes finite x[n]. Writes every word of payload[payload_words(n)].
  virtual void encode(const float* x, int64_t n, const BlockRng& rng, uint32_t* payload) const = 0;
  // Like encode(), but checks the input. Returns false, with `payload` unspecified, if a value is not finite. Override
  // this function if the compressor scans all values anyway.
  virtual bool encode_finite(const float* x, int64_t n, const BlockRng& rng, uint32_t* payload) const;
  virtual void decode(const uint32_t* payload, int64_t n, float* x) const = 0;  // decodes to x[n]
  // x += factor · decoded. factor is 1 or −1; `scratch` has room for n values. Override this function for sparse codes.
  virtual void add(const uint32_t* payload, int64_t n, float factor, float* x, float* scratch) const;
  // The GPU kernels that produce the same codes. By default there are none, and GPU tensors are rejected.
  virtual CodeFormat format() const { return {}; }
};

}  // namespace godwit
