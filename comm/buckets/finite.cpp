#include "comm/buckets/finite.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "engine/check.h"
#include "engine/host_reads.h"
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

}  // namespace

Tensor first_not_finite_key(Cpu, const Tensor& x, int64_t n) {
  const Tensor key({1}, DType::i64, kCpu);
  key.zero();
  dispatch_real(x.dtype(), "first_not_finite", [&]<class T>() {
    const T* values = x.data<T>();
    if (all_finite<T, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>(values, n)) return;
    const int64_t i = std::find_if(values, values + n, [](T value) { return !std::isfinite(value); }) - values;
    key.data<int64_t>()[0] = static_cast<int64_t>(not_finite_key(n, i, values[i]));
  });
  return key;
}

int64_t first_not_finite(const Tensor& x, int64_t n) {
  const auto key = static_cast<uint64_t>(
      on_device(x, [&](auto device) { return first_not_finite_key(device, x, n); }).to_vector<int64_t>()[0]);
  return key == 0 ? n : not_finite_of(key, n).index;
}

void find_not_finite(const Tensor& x, int64_t n, std::function<void(const NotFinite&)> found) {
  const Tensor key = on_device(x, [&](auto device) { return first_not_finite_key(device, x, n); });
  read_on_host(key, [n, found = std::move(found)](const Tensor& values) {
    if (const auto bits = static_cast<uint64_t>(values.data<int64_t>()[0]); bits != 0) found(not_finite_of(bits, n));
  });
}

void fail_not_finite(const std::string& who, int64_t step, const Bucket& bucket, const NotFinite& bad) {
  for (const Slot& slot : bucket.slots) {
    if (bad.index < slot.offset || bad.index >= slot.offset + slot.numel) continue;
    fail(who, ": step ", step, ": the gradient of '", slot.name, "' is ", bad.value, " at element ",
         bad.index - slot.offset, "; lower the learning rate or look for a division by zero in the loss");
  }
  fail(who, ": step ", step, ": a gradient of bucket ", bucket.index, " is not finite");
}

void fail_not_finite(const std::string& who, int64_t step, const Bucket& bucket) {
  const int64_t i = first_not_finite(bucket.grad, bucket.numel);
  if (i == bucket.numel) fail_kept_not_finite(who, step, bucket);
  fail_not_finite(who, step, bucket, {i, bucket.grad.item(i)});
}

void fail_kept_not_finite(const std::string& who, int64_t step, const Bucket& bucket) {
  fail(who, ": step ", step, ": the gradient of bucket ", bucket.index,
       ", or its sum with the error feedback, is not finite; lower the learning rate");
}

}  // namespace godwit
