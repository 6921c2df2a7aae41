// Tensor-core operations of one warp, for compute capability 8.0 and later. All 32 lanes must call them together.
// Fragments (PTX ISA, "Matrix fragments for mma.m16n8k16"), with g = lane / 4 and t = lane % 4:
//   a [16, 16]: words 0…3 hold columns (2t, 2t + 1) of rows g and g + 8, then columns (2t + 8, 2t + 9) of these rows
//   b [16, 8]:  words 0 and 1 hold rows (2t, 2t + 1) and (2t + 8, 2t + 9) of column g
//   d [16, 8]:  columns 2t and 2t + 1 of row g, then of row g + 8
#pragma once
#include <cstdint>

#include "engine/cuda/approximate.h"
#include "engine/cuda/launch.h"

#ifdef __CUDACC__
namespace godwit {

// d += a · b. Each word holds two bfloat16, the first in the lower half; sums are in float32.
__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four matrices, each of 8 rows of 16 bytes, from shared memory. Lane i passes row i % 8 of matrix i / 8. Word m
// of the result holds row g, columns (2t, 2t + 1) of matrix m.
__device__ inline void load_matrices(uint32_t (&words)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// Loads the four transposed matrices. Word m of the result holds rows (2t, 2t + 1), column g of matrix m.
__device__ inline void load_transposes(uint32_t (&words)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// Copies 16 bytes to shared memory asynchronously. If `there` is false, writes zeros and does not read `from`.
__device__ inline void copy_async(void* to, const void* from, bool there) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
      : "memory");
}

// Waits for the thread's asynchronous copies.
__device__ inline void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Two values rounded to bfloat16, the first in the lower half.
__device__ inline uint32_t pack_bf16(float first, float second) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

}  // namespace godwit
#else  // kernels run on the CPU
#include <emulated_tensor_cores.h>
#endif
