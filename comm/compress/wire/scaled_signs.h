// Wire format for scaled signs: C[y] = s·sign(y), one bit per value and one float32 scale s per block; sign(0) = +1.
// The sender keeps the error y − C[y].
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace godwit {

enum class SignScale {  // formulas of a block's scale
  l1_mean,  // s = Σ|y| / n over the block's n values
  l2_rms,   // s = √(Σy² / n)
};
inline std::vector<std::string> choices_of(SignScale) { return {"l1_mean", "l2_rms"}; }

// Up to kValues consecutive values of one block. A message is an array of 32-bit words that holds scales and sign bits
// (1 for +1; least significant bit first).
struct SignTile {
  static constexpr int64_t kValues = 4096;  // most values of a tile
  int64_t at;                               // first value, as an index into the array of values
  int64_t bit;                              // position of its sign in the message, in bits
  int64_t slot;                             // index of the message word that holds the scale
  int32_t block;                            // index of the tile's block
  int32_t count;                            // number of values
};

// Blocks cut into tiles from their beginning, so that sums do not depend on the thread count.
struct SignTiles {
  std::vector<SignTile> tiles;  // of all blocks
  std::vector<int64_t> sizes;   // of each block, in values
  mutable Tensor copy;          // GPU copy of `tiles` as bytes, made on first use

  // Adds the next `count` values of a block, beginning at index `at`, as tiles.
  void add(int64_t at, int64_t count, int64_t bit, int64_t slot, int64_t block);
};

constexpr int64_t kFarAway = std::numeric_limits<int64_t>::max();  // beyond every position

// y = x + e;  s of every block of y;  e ← y − s·sign(y). Writes scales and bits to `words`, whose sign bits must be 0
// before. Sums are float32 within a tile, in 16 interleaved parts, and float64 across tiles. Makes one pass over memory
// if every block is one tile, otherwise two. On a GPU `tiles` must be in block order. Returns the argument of
// first_fault(), on the device.
[[nodiscard]] Tensor compress_signs(Cpu, const float* x, float* e, const SignTiles& tiles, SignScale scale,
                                    uint32_t* words);
[[nodiscard]] Tensor compress_signs(Cuda, const float* x, float* e, const SignTiles& tiles, SignScale scale,
                                    uint32_t* words);
// −1, or the index of the first value of a block whose scale is not finite; `words` and e are then unusable. For a
// tensor on a GPU the host waits.
int64_t first_fault(const Tensor& fault);

// compress_signs() of x = (sum of the senders' decoded values, in sender order) / senders. Sender k's message has the
// layout of `words` and begins at received + k·stride.
[[nodiscard]] Tensor compress_mean_of_signs(Cpu, const uint32_t* received, int senders, int64_t stride, float* e,
                                            const SignTiles& tiles, SignScale scale, uint32_t* words);
[[nodiscard]] Tensor compress_mean_of_signs(Cuda, const uint32_t* received, int senders, int64_t stride, float* e,
                                            const SignTiles& tiles, SignScale scale, uint32_t* words);

// x = C[y] for all values.
void expand_signs(Cpu, const uint32_t* words, const SignTiles& tiles, float* x);
void expand_signs(Cuda, const uint32_t* words, const SignTiles& tiles, float* x);

}  // namespace godwit
