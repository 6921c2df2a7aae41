// Detects non-finite gradients, which low-bit codes would hide.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "comm/buckets/bucket.h"
#include "comm/buckets/not_finite.h"

namespace godwit {

// Throws "<who>: step <step>: the gradient of '<parameter>' is <value> at element <i>; …". bad.index is the index in
// the bucket.
[[noreturn]] void fail_not_finite(const std::string& who, int64_t step, const Bucket& bucket, const NotFinite& bad);

// Looks for a non-finite value in bucket.grad, which must still contain the step's gradient. On a GPU, the host waits.
// Throws the error above if there is such a value, otherwise the error of fail_kept_not_finite().
[[noreturn]] void fail_not_finite(const std::string& who, int64_t step, const Bucket& bucket);
// Throws an Error that names the bucket and states that the gradient, or its sum with the error feedback, is not
// finite.
[[noreturn]] void fail_kept_not_finite(const std::string& who, int64_t step, const Bucket& bucket);

// Index of the first non-finite value in x[0, n), or n if all values are finite. Multithreaded on the CPU. On a GPU,
// the host waits for the result.
int64_t first_not_finite(const Tensor& x, int64_t n);
// Calls found() with the first non-finite value in x[0, n), if there is one. On a GPU, read_on_host() makes the call.
void find_not_finite(const Tensor& x, int64_t n, std::function<void(const NotFinite&)> found);
// Returns [1] int64 on x's device: not_finite_key() of the first non-finite value in x[0, n), or 0 if all values are
// finite.
Tensor first_not_finite_key(Cpu, const Tensor& x, int64_t n);
Tensor first_not_finite_key(Cuda, const Tensor& x, int64_t n);

}  // namespace godwit
