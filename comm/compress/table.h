// Tables of plain structs that kernels read where they run.
#pragma once
#include <vector>

#include "engine/tensor.h"

namespace godwit {

template <class T>
struct Table {
  std::vector<T> all;
  mutable Tensor copy = {};  // of `all`, as bytes on a GPU, once it was needed there
};

// Values [begin, begin + n) of a block, for one block of threads. long_block: which of the long ones it is a piece of;
// −1 where it is the whole block.
struct BlockPiece {
  int64_t block, begin, n, long_block;
};

// Of several pieces: [first, first + pieces).
struct LongBlock {
  int64_t block, first, pieces;
};

struct BlockPieces {
  Table<BlockPiece> all = {};  // those of long blocks first
  Table<LongBlock> long_blocks = {};
  int64_t of_long_blocks = 0;
};

// Blocks of values, and the pieces in which a GPU takes them, once they were needed.
template <class T>
struct BlockTable : Table<T> {
  mutable BlockPieces pieces = {};
};

}  // namespace godwit
