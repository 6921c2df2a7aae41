// Gradients that are not finite, which low-bit codes would hide.
#pragma once
#include "comm/parallel/bucket.h"

namespace godwit {

// Throws "<who>: step <step>: the gradient of '<parameter>' is <value> at element <i>; …" for the first value that is
// not finite among gradient[0, count), which are the bucket's elements from `begin` on.
[[noreturn]] void fail_not_finite(const std::string& who, int64_t step, const Bucket& bucket, const float* gradient,
                                  int64_t begin, int64_t count);

[[noreturn]] void fail_not_finite(const std::string& who, int64_t step, const Bucket& bucket);  // bucket.grad's

// Index of the first of x[0, n) that is not finite; n when all are. One pass, threaded; on a GPU the host waits for it.
int64_t first_not_finite(const Tensor& x, int64_t n);
int64_t first_not_finite(Cpu, const Tensor& x, int64_t n);
int64_t first_not_finite(Cuda, const Tensor& x, int64_t n);

}  // namespace godwit
