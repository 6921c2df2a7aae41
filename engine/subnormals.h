// FlushSubnormals: arithmetic without subnormal numbers (magnitude below 2^-126 in float32).
#pragma once
#include <cstdint>

namespace godwit {

// While an object of this type exists, the calling thread's instructions treat subnormal inputs as 0 and return 0
// instead of subnormal results. Some processors need a hundred cycles for an instruction with a subnormal number. No
// effect on processors other than x86-64 and 64-bit ARM.
class FlushSubnormals {
 public:
#if defined(__x86_64__)
  // Without immintrin.h, whose warnings Highway suppresses only if Highway includes the header first. The two bits
  // flush results and inputs.
  FlushSubnormals() : saved_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(saved_ | 0x8040u); }
  ~FlushSubnormals() { __builtin_ia32_ldmxcsr(saved_); }
#elif defined(__aarch64__)
  FlushSubnormals() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(saved_ | uint64_t{1} << 24) : "memory");
  }
  ~FlushSubnormals() { asm volatile("msr fpcr, %0" : : "r"(saved_) : "memory"); }
#else
  FlushSubnormals() {}
#endif
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
#if defined(__x86_64__)
  unsigned saved_;
#elif defined(__aarch64__)
  uint64_t saved_;
#endif
};

}  // namespace godwit
