#include "comm/finite.h"

#include <algorithm>
#include <cmath>

#include "engine/check.h"

namespace godwit {

void fail_not_finite(const std::string& who, int64_t step, const Bucket& bucket, const float* gradient, int64_t begin,
                     int64_t count) {
  const int64_t i = std::find_if(gradient, gradient + count, [](float g) { return !std::isfinite(g); }) - gradient;
  for (const Slot& slot : bucket.slots) {
    if (begin + i < slot.offset || begin + i >= slot.offset + slot.numel) continue;
    fail(who, ": step ", step, ": the gradient of '", slot.name, "' is ", gradient[i], " at element ",
         begin + i - slot.offset, "; lower the learning rate or look for a division by zero in the loss");
  }
  fail(who, ": step ", step, ": a gradient of bucket ", bucket.index, " is not finite");
}

}  // namespace godwit
