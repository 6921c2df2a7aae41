// Parallel loops whose bodies are compiled for wider vectors too, chosen on the machine they run on.
#pragma once
#include "engine/parallel.h"

// Marks a loop body, and what it calls, to be compiled into each copy: [=](int64_t begin, int64_t end) GODWIT_INLINE
// {…}
#define GODWIT_INLINE __attribute__((always_inline))

namespace godwit {

namespace detail {
#ifdef __x86_64__
template <class F>
[[gnu::target("avx2")]] void run_wide(const F& f, int64_t begin, int64_t end) {
  f(begin, end);
}
inline bool wide_vectors() { return __builtin_cpu_supports("avx2"); }
#else
template <class F>
void run_wide(const F& f, int64_t begin, int64_t end) {
  f(begin, end);
}
inline bool wide_vectors() { return false; }
#endif
}  // namespace detail

// parallel_for over plain loops that the compiler vectorises, with AVX2 where the machine has it. The bits are the
// same: lanes do not mix, and the build contracts nothing to fused multiply-add.
template <class F>
void vector_for(int64_t n, int64_t grain, const F& f) {
  parallel_for(n, grain, [&f, wide = detail::wide_vectors()](int64_t begin, int64_t end) {
    if (wide) detail::run_wide(f, begin, end);
    else f(begin, end);
  });
}

}  // namespace godwit
