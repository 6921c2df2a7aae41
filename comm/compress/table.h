// Tables of plain structs that kernels read.
#pragma once
#include <vector>

#include "engine/tensor.h"

namespace godwit {

// An array that kernels read, and its GPU copy. T must be trivially copyable.
template <class T>
struct Table {
  std::vector<T> all;        // the array
  mutable Tensor copy = {};  // GPU copy of `all` as bytes, created on first use
};

// Values [begin, begin + n) of a block, the work of one thread block. long_block: index of the LongBlock to which the
// piece belongs; −1 if the piece is a whole block.
struct BlockPiece {
  int64_t block, begin, n, long_block;  // see above
};

// A block with several pieces: [first, first + pieces).
struct LongBlock {
  int64_t block, first, pieces;  // index of the block; range of its pieces
};

// The pieces of all blocks.
struct BlockPieces {
  Table<BlockPiece> all = {};         // pieces of long blocks come first
  Table<LongBlock> long_blocks = {};  // blocks with several pieces
  int64_t of_long_blocks = 0;         // number of pieces of long blocks
};

// Blocks of values, and their pieces for the GPU.
template <class T>
struct BlockTable : Table<T> {
  mutable BlockPieces pieces = {};  // created on first use
};

}  // namespace godwit
