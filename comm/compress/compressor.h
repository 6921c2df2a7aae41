// BlockCodec: a compressor, from blocks of float32 values to 32-bit words and back. To write one, derive from it in a
// file of your own and hand it to block_exchange() (comm/exchange/block_exchange.h), which does the rest: sending, averaging,
// error feedback, state. docs/compressors.md shows a whole one.
#pragma once
#include <cstdint>
#include <variant>

#include "engine/random_words.h"

namespace godwit {

// The random numbers of a block's values. They are named by the values' place in the whole parameter vector, the step
// and the sender: the same ones for any bucket size and number of threads.
struct BlockDraw {
  Draws draws;
  int64_t element;  // of the block's first value

  // Of the values [i, i + count): `buffer` has room for count + kRandomSlack; to_unit() of engine/philox.h makes them
  // uniform in [0, 1). Draw for pieces of one or two thousand values, which stay in the cache. `ahead`: `count` float32
  // that are read next, often those behind the piece, which the processor may fetch meanwhile.
  const uint32_t* words(int64_t i, int64_t count, uint32_t* buffer, const float* ahead = nullptr) const {
    return random_words(draws, element + i, count, buffer, ahead);
  }
};

// Codes that a GPU has kernels for.
struct LevelFormat {  // comm/compress/levels.h: a scale, and whole numbers −levels … levels
  enum class Scale { largest, norm, clipped };
  Scale scale;        // the largest magnitude; the L2 norm; the largest, but at most clip_sigma root mean squares
  int levels;
  bool random;        // rounding; else to nearest
  double clip_sigma;  // of Scale::clipped; 0: not clipped
  const char* name;   // begins messages
};
struct OneBitFormat {};                // comm/compress/one_bit_sgd.cpp
struct LargestFormat {                 // comm/compress/topk.cpp
  double density;
};
using CodeFormat = std::variant<std::monostate, LevelFormat, OneBitFormat, LargestFormat>;

// Const and without state of its own: blocks are coded on several threads, in any order.
class BlockCodec {
 public:
  virtual ~BlockCodec() = default;
  virtual int64_t words(int64_t n) const = 0;  // of the code of n >= 1 values
  // x[n], finite, to code[words(n)], every word of it.
  virtual void encode(const float* x, int64_t n, const BlockDraw& draw, uint32_t* code) const = 0;
  // The same of any values; false where one of them is not finite: then the code is not used. For codecs that look at
  // all values first, a shorter way.
  virtual bool encode_finite(const float* x, int64_t n, const BlockDraw& draw, uint32_t* code) const;
  virtual void decode(const uint32_t* code, int64_t n, float* x) const = 0;
  // x += factor·decoded, factor 1 or −1; `scratch` has room for n values. For codes of few values, a shorter way.
  virtual void add(const uint32_t* code, int64_t n, float factor, float* x, float* scratch) const;
  // Which of a GPU's kernels make the same codes; without one, a GPU's tensors are refused.
  virtual CodeFormat format() const { return {}; }
};

}  // namespace godwit
