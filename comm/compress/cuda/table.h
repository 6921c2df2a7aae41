// Tables in GPU memory.
#pragma once
#include <algorithm>
#include <span>
#include <type_traits>

#include "comm/compress/table.h"
#include "comm/compress/wire/block_math.h"
#include "engine/cuda/cuda_context.h"

namespace godwit {

// Returns the table's GPU copy, which the first call creates.
template <class T>
const T* table_on(Cuda, const Table<T>& table) {
  static_assert(std::is_trivially_copyable_v<T>);
  Tensor& copy = table.copy;
  if (!copy.defined()) {
    const size_t size = table.all.size() * sizeof(T);
    const std::span bytes(reinterpret_cast<const uint8_t*>(table.all.data()), size);
    copy = Tensor::of(bytes, {static_cast<int64_t>(size)});
  }
  return reinterpret_cast<const T*>(copy.cuda_data<uint8_t>());
}

// Returns the blocks' pieces of at most kSumPiece values, which the first call creates.
template <class T>
const BlockPieces& pieces_of(const BlockTable<T>& blocks) {
  BlockPieces& made = blocks.pieces;
  auto& all = made.all.all;
  if (!all.empty()) return made;
  const int64_t count = std::ssize(blocks.all);
  for (int64_t b = 0; b < count; ++b) {
    const int64_t n = blocks.all[static_cast<size_t>(b)].numel(), first = std::ssize(all);
    if (n <= kSumPiece) continue;
    for (int64_t at = 0; at < n; at += kSumPiece)
      all.push_back({b, at, std::min(kSumPiece, n - at), std::ssize(made.long_blocks.all)});
    made.long_blocks.all.push_back({b, first, std::ssize(all) - first});
  }
  made.of_long_blocks = std::ssize(all);
  for (int64_t b = 0; b < count; ++b)
    if (const int64_t n = blocks.all[static_cast<size_t>(b)].numel(); n <= kSumPiece) all.push_back({b, 0, n, -1});
  return made;
}

// Uninitialized GPU memory for n plain structs. It is used and freed in stream order.
template <class T>
class Scratch {
 public:
  Scratch(Cuda device, int64_t n) : bytes_(workspace(device, n * static_cast<int64_t>(sizeof(T)))) {}
  T* data() const { return reinterpret_cast<T*>(bytes_.cuda_data<uint8_t>()); }

 private:
  Tensor bytes_;
};

}  // namespace godwit
