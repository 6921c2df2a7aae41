// Parallel loops compiled for several vector widths. The width is selected at run time.
#pragma once
#include "engine/inline.h"
#include "engine/parallel.h"
#include "engine/subnormals.h"

// Marks a loop whose output array may equal one of its input arrays. Other overlaps are not allowed.
#ifdef __clang__
#define GODWIT_IN_PLACE _Pragma("clang loop vectorize(assume_safety)")
#else
#define GODWIT_IN_PLACE _Pragma("GCC ivdep")
#endif

namespace godwit {

namespace detail {
#ifdef __x86_64__
template <class F>
[[gnu::target("avx2")]] void run_avx2(const F& f, int64_t begin, int64_t end) {
  f(begin, end);
}
template <class F>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void run_avx512(const F& f, int64_t begin, int64_t end) {
  f(begin, end);
}
// Vector width in bits: the largest that the processor and the context allow.
inline int vector_bits() {
  const int allowed = context().vector_bits;
  if (allowed >= 512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return 512;
  return allowed >= 256 && __builtin_cpu_supports("avx2") ? 256 : 128;
}
// Whether the processor has AVX512_BF16 and computes more products per second with it than in float32. Compared with
// float32, Intel's Emerald Rapids computes half as many products, AMD's Zen 4 and Zen 5 twice as many.
inline bool fast_avx512_bf16() {
  return __builtin_cpu_supports("avx512bf16") && (!__builtin_cpu_is("intel") || __builtin_cpu_is("cooperlake"));
}
template <class F>
void run_wide(int bits, const F& f, int64_t begin, int64_t end) {
  if (bits == 512) run_avx512(f, begin, end);
  else if (bits == 256) run_avx2(f, begin, end);
  else f(begin, end);
}
#else
inline int vector_bits() { return 128; }
inline bool fast_avx512_bf16() { return false; }
template <class F>
void run_wide(int, const F& f, int64_t begin, int64_t end) {
  f(begin, end);
}
#endif
}  // namespace detail

// parallel_for over plain loops that the compiler vectorizes, with AVX-512 or AVX2 if available. Results are
// bit-identical for all widths, because lanes do not mix and the build disables contraction to fused multiply-add.
template <class F>
void vector_for(int64_t n, int64_t grain, const F& f) {
  parallel_for(n, grain, [&f, bits = detail::vector_bits()](int64_t begin, int64_t end) {
    detail::run_wide(bits, f, begin, end);
  });
}

// vector_for for forward and backward passes, where subnormal numbers are treated as 0 (engine/subnormals.h).
template <class F>
void compute_for(int64_t n, int64_t grain, const F& f) {
  parallel_for(n, grain, [&f, bits = detail::vector_bits()](int64_t begin, int64_t end) {
    const FlushSubnormals flush;
    detail::run_wide(bits, f, begin, end);
  });
}

}  // namespace godwit
