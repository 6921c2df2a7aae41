// Kernels that update several arrays in place with f(i, a[i], b[i], …). Each access handles 16 bytes of the widest
// type.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "engine/cuda/elementwise.h"
#include "engine/rounded_copy.h"

namespace godwit {

namespace detail {

template <class T, int n>
__device__ void store_pack(const T*, const Pack<T, n>&) {}  // read-only array

// Stores a pack rounded to bfloat16 unless `to` is null. Only float arrays have rounded copies.
template <class T, int n>
__device__ void store_rounded(bf16* to, const Pack<T, n>& pack) {
  if constexpr (std::is_same_v<T, float>) {
    if (!to) return;
    Pack<bf16, n> rounded;
    for (int k = 0; k < n; ++k) rounded.values[k] = static_cast<bf16>(pack.values[k]);
    store_pack(to, rounded);
  }
}

template <int n, class F, class First, class... T>
__device__ void update_pack(const F& f, int64_t i, bf16* rounded, First* first, T*... at) {
  const auto update = [&](Pack<std::remove_const_t<First>, n> pack, Pack<std::remove_const_t<T>, n>... packs) {
    for (int k = 0; k < n; ++k) f(i + k, pack.values[k], packs.values[k]...);
    store_pack(first + i, pack);
    (store_pack(at + i, packs), ...);
    store_rounded(rounded ? rounded + i : nullptr, pack);
  };
  update(load_pack<n>(first + i, 0), load_pack<n>(at + i, 0)...);
}

// Processes [begin, first) and [last, end) element by element, and [first, last) in packs.
template <int n, class F, class... T>
__global__ void update_kernel(F f, int64_t begin, int64_t first, int64_t last, int64_t end, bf16* rounded, T*... at) {
  const int64_t thread = grid_thread(), stride = grid_threads();
  for (int64_t i = first + n * thread; i < last; i += n * stride) update_pack<n>(f, i, rounded, at...);
  for (int64_t i = begin + thread; i < first; i += stride) update_pack<1>(f, i, rounded, at...);
  for (int64_t i = last + thread; i < end; i += stride) update_pack<1>(f, i, rounded, at...);
}

// Kernel arguments of update_by_turns(): formulas of parts with an even and an odd index, the index of the first part,
// and the bounds of the parts as offsets from the start of the first part.
template <class F>
struct Turns {
  static constexpr int kMost = 255;
  F formulas[2];
  int32_t first, count;
  uint32_t bounds[kMost];
};

// The number of bounds that are at most `offset`.
template <class F>
__device__ int32_t part_at(const Turns<F>& turns, uint32_t offset) {
  int32_t low = 0, high = turns.count;
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (turns.bounds[middle] <= offset) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Updates a pack. A pack that contains a bound is updated element by element.
template <int n, class F, class... T>
__device__ void update_pack_by_turns(const Turns<F>& turns, int64_t begin, int64_t i, bf16* rounded, T*... at) {
  const auto offset = static_cast<uint32_t>(i - begin);
  const int32_t part = part_at(turns, offset);
  if (part == turns.count || offset + n <= turns.bounds[part]) {
    const F f = turns.formulas[(turns.first + part) & 1];
    return update_pack<n>(f, i, rounded, at...);
  }
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
    const F f = turns.formulas[(turns.first + part_at(turns, offset + static_cast<uint32_t>(k))) & 1];
    update_pack<1>(f, i + k, rounded, at...);
  }
}

// Like update_kernel(), with alternating formulas.
template <int n, class F, class... T>
__global__ void update_by_turns_kernel(const __grid_constant__ Turns<F> turns, int64_t begin, int64_t first,
                                       int64_t last, int64_t end, bf16* rounded, T*... at) {
  const int64_t thread = grid_thread(), stride = grid_threads();
  for (int64_t i = first + n * thread; i < last; i += n * stride)
    update_pack_by_turns<n>(turns, begin, i, rounded, at...);
  for (int64_t i = begin + thread; i < first; i += stride) update_pack_by_turns<1>(turns, begin, i, rounded, at...);
  for (int64_t i = last + thread; i < end; i += stride) update_pack_by_turns<1>(turns, begin, i, rounded, at...);
}

// Returns the memory for rounded values of update_each()'s first array, or null. Marks other rounded copies of the
// arrays as out of date.
template <class First, class... T>
bf16* rounded_target(int64_t begin, int64_t end, First* first, T*... at) {
  const auto expire = [&]<class A>(A* array) {
    if constexpr (!std::is_const_v<A>)
      expire_rounded_copies(array + begin, (end - begin) * static_cast<int64_t>(sizeof(A)));
  };
  (expire(at), ...);
  if constexpr (std::is_same_v<First, float>) return updated_copy(first, begin, end);
  expire(first);
  return nullptr;
}

}  // namespace detail

// The part [first, last) of a range that kernels process in packs.
struct PackedRange {
  int64_t first, last, packs;
  // Number of threads that process [begin, end) in one pass.
  int64_t threads(int64_t begin, int64_t end) const { return std::max({packs, first - begin, end - last}); }
};

// The packs of n elements in [begin, end), aligned to 16 bytes in all arrays. There are none if the arrays do not reach
// this alignment at a common element.
template <int n, class... T>
PackedRange packed_range(int64_t begin, int64_t end, const T*... at) {
  int64_t first = begin;
  while (first < end && first < begin + n && !aligned_to<16>((at + first)...)) ++first;
  if (!aligned_to<16>((at + first)...)) first = end;
  const int64_t packs = (end - first) / n;
  return {first, first + packs * n, packs};
}

// Calls f(i, at[i]…) for i in [begin, end). f is a functor with a const __device__ operator() that takes the elements
// to update by reference. If the operator has GODWIT_INLINE, f also runs on the CPU (engine/update_each.h). A read-only
// array may equal one of the updated arrays. Arrays that do not reach 16-byte alignment at a common i are processed
// element by element. Within RoundedCopy::update(), the copy of the first array is also written.
template <class F, class... T>
void update_each(Cuda device, const char* operation, int64_t begin, int64_t end, F f, T*... at) {
  constexpr int kWidth = 16 / detail::largest(sizeof(T)...);
  const PackedRange packed = packed_range<kWidth>(begin, end, at...);
  launch(device, operation, detail::update_kernel<kWidth, F, T...>, blocks_for(device, packed.threads(begin, end)),
         kBlock, f, begin, packed.first, packed.last, end, detail::rounded_target(begin, end, at...), at...);
}

// Each launch handles up to Turns::kMost bounds and 2³¹ elements.
template <class F, class... T>
void update_by_turns(Cuda device, const char* operation, int64_t begin, int64_t end, const std::vector<int64_t>& bounds,
                     F first, F second, T*... at) {
  using Turns = detail::Turns<F>;
  constexpr int kWidth = 16 / detail::largest(sizeof(T)...);
  constexpr int64_t kMostElements = int64_t{1} << 31;
  for (size_t i = 0; begin < end;) {
    Turns turns{{first, second}, static_cast<int32_t>(i), 0, {}};
    int64_t stop = std::min(end, begin + kMostElements);
    for (; i < bounds.size() && bounds[i] < stop; ++i) {
      if (turns.count == Turns::kMost) {
        stop = bounds[i];
        break;
      }
      turns.bounds[turns.count++] = static_cast<uint32_t>(bounds[i] - begin);
    }
    if (begin == stop) continue;  // all parts of this launch are empty
    const PackedRange packed = packed_range<kWidth>(begin, stop, at...);
    bf16* const rounded = detail::rounded_target(begin, stop, at...);
    launch(device, operation, detail::update_by_turns_kernel<kWidth, F, T...>,
           blocks_for(device, packed.threads(begin, stop)), kBlock, turns, begin, packed.first, packed.last, stop,
           rounded, at...);
    begin = stop;
  }
}

}  // namespace godwit
