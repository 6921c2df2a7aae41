// Tables in a GPU's memory.
#pragma once
#include <span>
#include <type_traits>

#include "comm/table.h"
#include "engine/cuda/cuda_context.h"

namespace godwit {

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

}  // namespace godwit
