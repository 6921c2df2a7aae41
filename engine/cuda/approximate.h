// Fast GPU functions with small errors.
#pragma once
#include <cmath>

#include "engine/inline.h"

namespace godwit {

// 2^x, with an error of at most 2 units in the last place; subnormal results become 0.
GODWIT_INLINE inline float exp2_approximate(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else  // on the CPU
  return std::exp2(x);
#endif
}

// 1 / x, with an error of at most 1 unit in the last place; subnormal numbers become 0.
GODWIT_INLINE inline float reciprocal_approximate(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1 / x;
#endif
}

}  // namespace godwit
