// GODWIT_INLINE: forces inlining and, under nvcc, adds __host__ __device__.
#pragma once

// Marks a loop body and the functions that it calls: [=](int64_t begin, int64_t end) GODWIT_INLINE {…}
#ifdef __CUDACC__
#define GODWIT_INLINE __host__ __device__ __attribute__((always_inline))
#else
#define GODWIT_INLINE __attribute__((always_inline))
#endif
