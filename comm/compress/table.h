// Tables of plain structs that kernels read on their device.
#pragma once
#include <vector>

#include "engine/tensor.h"

namespace godwit {

// An array that kernels read, with its copy on the GPU. T must be trivially copyable.
template <class T>
struct Table {
  std::vector<T> all;        // the array
  mutable Tensor copy = {};  // GPU copy of `all` as bytes, made on first use
};

// Values [begin, begin + n) of a block, the work of one block of threads. long_block: index of the long block it
// belongs to; −1 if it is a whole block.
struct BlockPiece {
  int64_t block, begin, n, long_block;  // see above
};

// A block of several pieces: [first, first + pieces).
struct LongBlock {
  int64_t block, first, pieces;  // index of the block; its pieces
};

// Blocks cut into pieces.
struct BlockPieces {
  Table<BlockPiece> all = {};         // pieces of long blocks first
  Table<LongBlock> long_blocks = {};  // blocks of several pieces
  int64_t of_long_blocks = 0;         // number of pieces of long blocks
};

// Blocks of values, and their pieces for the GPU, made on first use.
template <class T>
struct BlockTable : Table<T> {
  mutable BlockPieces pieces = {};  // made on first use
};

}  // namespace godwit
