// Detection of non-finite gradients, which low-bit codes would hide.
#pragma once
#include "comm/parallel/bucket.h"

namespace godwit {

// Throws "<who>: step <step>: the gradient of '<parameter>' is <value> at element <i>; …" for the first non-finite
// value in gradient[0, count), whose element 0 is the bucket's element `begin`.
[[noreturn]] void fail_not_finite(const std::string& who, int64_t step, const Bucket& bucket, const float* gradient,
                                  int64_t begin, int64_t count);

// Checks bucket.grad; if it is finite, the error blames the kept state (error feedback).
[[noreturn]] void fail_not_finite(const std::string& who, int64_t step, const Bucket& bucket);

// Index of the first non-finite value in x[0, n), or n if there is none. Threaded; on a GPU the host waits for the
// result.
int64_t first_not_finite(const Tensor& x, int64_t n);
int64_t first_not_finite(Cpu, const Tensor& x, int64_t n);
int64_t first_not_finite(Cuda, const Tensor& x, int64_t n);

}  // namespace godwit
