// Wire format for scaled signs: C[y] = s·sign(y) with one bit per value and one float32 scale s per block; sign(0) =
// +1. The sender keeps the error y − C[y].
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

// Up to kValues consecutive values of one block. A message is an array of 32-bit words that contains scales and sign
// bits (1 for +1; least significant bit first).
struct SignTile {
  static constexpr int64_t kValues = 4096;  // maximum number of values in a tile
  int64_t at;                               // index of the first value in the array of values
  int64_t bit;                              // position of the first value's sign in the message, in bits
  int64_t slot;                             // index of the message word that contains the scale
  int32_t block;                            // index of the tile's block
  int32_t count;                            // number of values
};

// Blocks cut into tiles, each block from its first value, so that sums do not depend on the thread count.
struct SignTiles {
  std::vector<SignTile> tiles;  // tiles of all blocks
  std::vector<int64_t> sizes;   // number of values of each block
  mutable Tensor copy;          // GPU copy of `tiles` as bytes, created on first use

  // Adds the next `count` values of a block, which begin at index `at`, as tiles.
  void add(int64_t at, int64_t count, int64_t bit, int64_t slot, int64_t block);
};

constexpr int64_t kFarAway = std::numeric_limits<int64_t>::max();  // beyond every position

// Computes y = x + e, then s of every block of y, then e ← y − s·sign(y). Writes scales and bits to `words`; the sign
// bits of `words` must be 0 on entry. Sums are in float32 within a tile, in 16 interleaved parts, and in float64 across
// tiles. Makes one pass over memory if every block is one tile, otherwise two passes. On a GPU, `tiles` must be in
// block order. Returns a tensor for first_fault(), on the device.
[[nodiscard]] Tensor compress_signs(Cpu, const float* x, float* e, const SignTiles& tiles, SignScale scale,
                                    uint32_t* words);
[[nodiscard]] Tensor compress_signs(Cuda, const float* x, float* e, const SignTiles& tiles, SignScale scale,
                                    uint32_t* words);
// Returns the index of the first value of a block whose scale is not finite, or −1 if all scales are finite. In the
// first case, `words` and e are unusable. For a tensor on a GPU, the host waits.
int64_t first_fault(const Tensor& fault);

// compress_signs() of x = (sum of the senders' decoded values, in sender order) / senders. The message of sender k has
// the layout of `words` and begins at received + k·stride.
[[nodiscard]] Tensor compress_mean_of_signs(Cpu, const uint32_t* received, int senders, int64_t stride, float* e,
                                            const SignTiles& tiles, SignScale scale, uint32_t* words);
[[nodiscard]] Tensor compress_mean_of_signs(Cuda, const uint32_t* received, int senders, int64_t stride, float* e,
                                            const SignTiles& tiles, SignScale scale, uint32_t* words);

// Decodes all values: x = C[y].
void expand_signs(Cpu, const uint32_t* words, const SignTiles& tiles, float* x);
void expand_signs(Cuda, const uint32_t* words, const SignTiles& tiles, float* x);

}  // namespace godwit
