// Kernels over the rows of matrices. Accesses handle 16 bytes where the addresses are aligned.
#pragma once
#include "engine/cuda/elementwise.h"

namespace godwit {

// Number of elements of T in 16 bytes.
template <class T>
constexpr int kPack = 16 / sizeof(T);

// Calls f.operator()<n>(). n is kPack<T> if `width`, the number of elements per row, is a multiple of kPack<T> and all
// pointers are aligned to 16 bytes; otherwise n is 1.
template <class T, class F, class... Pointers>
void by_packs(int64_t width, F&& f, Pointers... pointers) {
  if (width % kPack<T> == 0 && aligned_to<16>(pointers...)) f.template operator()<kPack<T>>();
  else f.template operator()<1>();
}

// Whether all pointers have the same offset from 16-byte alignment.
template <class First, class... Rest>
bool aligned_alike(const First* first, const Rest*... rest) {
  return (... && ((reinterpret_cast<uintptr_t>(first) - reinterpret_cast<uintptr_t>(rest)) % 16 == 0));
}

// Calls f.operator()<n>(c) for pieces [c, c + n) of a row of `width` elements, distributed over the threads of a block.
// If `packed`, n is kPack<T> where `row + c` is aligned to 16 bytes, and 1 at both ends of the row. Otherwise n is 1.
template <class T, class F>
__device__ void for_row(const T* row, uint32_t width, bool packed, const F& f) {
  constexpr uint32_t n = kPack<T>;
  uint32_t head = width, packs = 0;
  if (packed) {
    const auto before = static_cast<uint32_t>(-reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
    head = before < width ? before : width;
    packs = (width - head) / n;
  }
  for (uint32_t pack = threadIdx.x; pack < packs; pack += blockDim.x) f.template operator()<n>(head + pack * n);
  for (uint32_t i = threadIdx.x; i < width - packs * n; i += blockDim.x)
    f.template operator()<1>(i < head ? i : i + packs * n);
}

// Loads n elements of a vector whose alignment may differ from that of the row.
template <int n, class T>
__device__ detail::Pack<T, n> load_any(const T* from) {
  if (n > 1 && reinterpret_cast<uintptr_t>(from) % 16 == 0) return detail::load_pack<n>(from, 0);
  detail::Pack<T, n> result;
  for (int k = 0; k < n; ++k) result.values[k] = from[k];
  return result;
}

namespace detail {

template <int n, class F, class To>
__global__ void rows_kernel(F f, uint32_t packs, uint32_t row_packs, To* to) {
  for (uint32_t at = grid_thread32(); at < packs; at += grid_threads32()) {
    Pack<To, n> result;
    f(at / row_packs, at % row_packs * n, result.values);
    store_pack(to + int64_t{at} * n, result);
  }
}

}  // namespace detail

// Fills to [rows, width]. f(row, column, values) sets To values[n], the elements at [row, column + (0 … n - 1)]. f is a
// functor with a const __device__ operator() that is a template of n. n is kPack<To> if kPack<To> divides `unit` and
// the width and if `to` and all `from` are aligned to 16 bytes; otherwise n is 1.
template <class F, class To, class... From>
void generate_rows(Cuda device, const char* operation, int64_t rows, int64_t width, int64_t unit, F f, To* to,
                   const From*... from) {
  by_packs<To>(
      width % kPack<To> == 0 ? unit : 1,
      [&]<int n>() {
        const uint32_t packs = index_count(operation, rows * (width / n));
        launch(device, operation, detail::rows_kernel<n, F, To>, blocks_for(device, packs), kBlock, f, packs, width / n,
               to);
      },
      to, from...);
}

}  // namespace godwit
