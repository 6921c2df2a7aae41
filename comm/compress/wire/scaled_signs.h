// Scaled signs on the wire: C[y] = s·sign(y), one bit a value and one float32 scale s a block; sign(0) = +1. The sender
// keeps the error y − C[y].
#pragma once
#include <cstdint>
#include <vector>

#include "engine/tensor.h"

namespace godwit {

enum class SignScale {
  l1_mean,  // s = Σ|y| / n over the block's n values
  l2_rms,   // s = √(Σy² / n)
};

// A piece of a block, of at most kValues. A message is an array of 32-bit words that holds scales and, value by value,
// sign bits (1 for +1; least significant first).
struct SignTile {
  static constexpr int64_t kValues = 4096;
  int64_t at;     // its first value, in the array of values
  int64_t bit;    // that value's sign, in the message
  int64_t slot;   // the message's word that holds its scale
  int32_t block;  // it belongs to
  int32_t count;  // values
};

// Blocks cut into tiles, from each block's beginning, so that sums do not depend on threads.
struct SignTiles {
  std::vector<SignTile> tiles;
  std::vector<int64_t> sizes;  // of the blocks, in values
  mutable Tensor copy;         // of `tiles`, as bytes on a GPU, once it was needed there

  // A block's next piece of `count` values, of which `at` is the first.
  void add(int64_t at, int64_t count, int64_t bit, int64_t slot, int64_t block);
};

// y = x + e;  s of every block;  e ← y − s·sign(y). One pass over memory where every block is one tile, else two.
// Scales and bits go to `words`, whose sign bits are 0 before. Sums are float32 within a tile, in 16 interleaved parts,
// and float64 across tiles. Returns −1, or the first value of a block whose scale is not finite: then neither words nor
// e may be used. On a GPU: waits for that, and blocks follow one another in the tiles.
[[nodiscard]] int64_t compress_signs(Cpu, const float* x, float* e, const SignTiles& tiles, SignScale scale,
                                     uint32_t* words);
[[nodiscard]] int64_t compress_signs(Cuda, const float* x, float* e, const SignTiles& tiles, SignScale scale,
                                     uint32_t* words);

// The same of x = (Σ over the senders, in order, of what they sent) / senders; sender k's message, laid out as `words`,
// begins at received + k·stride.
[[nodiscard]] int64_t compress_mean_of_signs(Cpu, const uint32_t* received, int senders, int64_t stride, float* e,
                                             const SignTiles& tiles, SignScale scale, uint32_t* words);
[[nodiscard]] int64_t compress_mean_of_signs(Cuda, const uint32_t* received, int senders, int64_t stride, float* e,
                                             const SignTiles& tiles, SignScale scale, uint32_t* words);

// x = C[y] of all values.
void expand_signs(Cpu, const uint32_t* words, const SignTiles& tiles, float* x);
void expand_signs(Cuda, const uint32_t* words, const SignTiles& tiles, float* x);

}  // namespace godwit
