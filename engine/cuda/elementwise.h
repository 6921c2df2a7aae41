// Elementwise kernels: to[i] = f(from[i]…). Each access handles 16 bytes of the widest type; the tail is processed
// element by element.
#pragma once
#include <cstdint>

#include "engine/cuda/launch.h"
#include "engine/half.h"

namespace godwit {

namespace detail {

// n elements. A pack of more than 16 bytes takes several accesses of 16 bytes.
template <class T, int n>
struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Pack {
  T values[n];
};

template <int n, class T>
__device__ Pack<T, n> load_pack(const T* from, int64_t pack) {
  return reinterpret_cast<const Pack<T, n>*>(from)[pack];
}

template <class T, int n>
__device__ void store_pack(T* to, const Pack<T, n>& pack) {
  *reinterpret_cast<Pack<T, n>*>(to) = pack;
}

// f computes in compute_t; the result is rounded once, to To.
template <int n, class F, class To, class... From>
__device__ void map_pack(const F& f, To* to, int64_t pack, const Pack<From, n>&... from) {
  Pack<To, n> result;
  for (int k = 0; k < n; ++k) result.values[k] = static_cast<To>(f(static_cast<compute_t<From>>(from.values[k])...));
  store_pack(to + n * pack, result);
}

// Processes `packs` packs of n elements, then the remaining elements.
template <int n, class F, class To, class... From>
__global__ void map_kernel(F f, int64_t packs, int64_t elements, To* to, const From*... from) {
  const int64_t first = grid_thread(), stride = grid_threads();
  for (int64_t pack = first; pack < packs; pack += stride) map_pack<n>(f, to, pack, load_pack<n>(from, pack)...);
  for (int64_t i = packs * n + first; i < elements; i += stride)
    to[i] = static_cast<To>(f(static_cast<compute_t<From>>(from[i])...));
}

template <class F, class To>
__global__ void generate_kernel(F f, int64_t elements, To* to) {
  for (int64_t i = grid_thread(); i < elements; i += grid_threads()) to[i] = static_cast<To>(f(i));
}

constexpr int largest(int a) { return a; }
template <class... Rest>
constexpr int largest(int a, int b, Rest... rest) {
  return largest(a > b ? a : b, rest...);
}

}  // namespace detail

// Whether all pointers are aligned to `bytes` bytes.
template <size_t bytes, class... Pointers>
bool aligned_to(Pointers... pointers) {
  return (... && (reinterpret_cast<uintptr_t>(pointers) % bytes == 0));
}

// Sets to[i] = f(from[i]…) for i in [0, n). f is a functor with a const __device__ operator() on the compute_t of the
// types. `to` may equal one of `from`. Arrays that are not all aligned to 16 bytes are processed element by element.
template <class F, class To, class... From>
void elementwise(Cuda device, const char* operation, int64_t n, F f, To* to, const From*... from) {
  constexpr int kWidth = 16 / detail::largest(sizeof(To), sizeof(From)...);
  const int64_t packs = aligned_to<16>(to, from...) ? n / kWidth : 0;
  launch(device, operation, detail::map_kernel<kWidth, F, To, From...>,
         blocks_for(device, packs > 0 ? std::max(packs, n - packs * kWidth) : n), kBlock, f, packs, n, to, from...);
}

// Sets to[i] = f(i) for i in [0, n).
template <class F, class To>
void generate(Cuda device, const char* operation, int64_t n, F f, To* to) {
  launch(device, operation, detail::generate_kernel<F, To>, blocks_for(device, n), kBlock, f, n, to);
}

}  // namespace godwit
