// How functions that kernels share are marked: compiled into each loop that calls them, and for a GPU where nvcc reads
// them.
#pragma once

// Marks a loop body, and what it calls, to be compiled into each copy: [=](int64_t begin, int64_t end) GODWIT_INLINE
// {…}
#ifdef __CUDACC__
#define GODWIT_INLINE __host__ __device__ __attribute__((always_inline))
#else
#define GODWIT_INLINE __attribute__((always_inline))
#endif
