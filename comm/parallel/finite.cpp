#include "comm/parallel/finite.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/check.h"
#include "engine/vector_loop.h"

namespace godwit {
namespace {

// Ignoring the sign, the bit patterns of ∞ and NaN are larger than those of all finite values.
template <class T, class Bits>
bool all_finite(const T* x, int64_t n) {
  constexpr Bits kSize = static_cast<Bits>(-1) >> 1,
                 kInfinity = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  std::atomic<bool> finite = true;
  vector_for(n, 1 << 16, [x, &finite](int64_t begin, int64_t end) GODWIT_INLINE {
    Bits largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max<Bits>(largest, std::bit_cast<Bits>(x[i]) & kSize);
    if (largest >= kInfinity) finite = false;
  });
  return finite;
}

[[noreturn]] void fail_at(const std::string& who, int64_t step, const Bucket& bucket, int64_t element, double value) {
  for (const Slot& slot : bucket.slots) {
    if (element < slot.offset || element >= slot.offset + slot.numel) continue;
    fail(who, ": step ", step, ": the gradient of '", slot.name, "' is ", value, " at element ", element - slot.offset,
         "; lower the learning rate or look for a division by zero in the loss");
  }
  fail(who, ": step ", step, ": a gradient of bucket ", bucket.index, " is not finite");
}

}  // namespace

int64_t first_not_finite(Cpu, const Tensor& x, int64_t n) {
  return dispatch_real(x.dtype(), "first_not_finite", [&]<class T>() -> int64_t {
    const T* values = x.data<T>();
    if (all_finite<T, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>(values, n)) return n;
    return std::find_if(values, values + n, [](T value) { return !std::isfinite(value); }) - values;
  });
}

int64_t first_not_finite(const Tensor& x, int64_t n) {
  return on_device(x, [&](auto device) { return first_not_finite(device, x, n); });
}

void fail_not_finite(const std::string& who, int64_t step, const Bucket& bucket, const float* gradient, int64_t begin,
                     int64_t count) {
  const int64_t i = std::find_if(gradient, gradient + count, [](float g) { return !std::isfinite(g); }) - gradient;
  fail_at(who, step, bucket, begin + i, gradient[i]);
}

void fail_not_finite(const std::string& who, int64_t step, const Bucket& bucket) {
  const int64_t i = first_not_finite(bucket.grad, bucket.numel);
  check(i < bucket.numel, who, ": step ", step, ": what is kept of bucket ", bucket.index,
        " and its gradient together are not finite; lower the learning rate");
  fail_at(who, step, bucket, i, bucket.grad.item(i));
}

}  // namespace godwit
