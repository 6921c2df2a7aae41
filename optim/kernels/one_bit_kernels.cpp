#include "optim/kernels/one_bit_kernels.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "engine/vector_loop.h"

namespace godwit::one_bit {

Tensor frozen_lamb(Cpu, const FrozenLamb& a, const std::vector<Segment>& ranges) {
  const Tensor all({std::ssize(ranges)}, DType::f32, kCpu);
  for (size_t r = 0; r < ranges.size(); ++r) {
    const Segment& range = ranges[r];
    int32_t largest = 0;  // the bits of positive floats have the order of their values
    std::mutex mutex;
    const auto update = [&](int64_t begin, int64_t end) GODWIT_INLINE {
      const FrozenLambUpdate f = a.f;
      float *m = a.m + range.begin, *agreed = a.agreed + range.begin, *v_fresh = a.v_fresh + range.begin;
      const float* v = a.v + range.begin;
      int32_t own = 0;
      GODWIT_IN_PLACE
      for (int64_t i = begin; i < end; ++i) {
        float m_i = m[i], agreed_i = agreed[i], v_i = v_fresh[i];
        const float ratio = f(m_i, agreed_i, v_i, v[i]);
        m[i] = m_i, agreed[i] = agreed_i, v_fresh[i] = v_i;
        own = std::max(own, ratio > 0 ? std::bit_cast<int32_t>(ratio) : 0);  // ignores NaN
      }
      std::lock_guard lock(mutex);
      largest = std::max(largest, own);
    };
    vector_for(range.numel(), 1 << 15, update);
    all.data<float>()[r] = std::bit_cast<float>(largest);
  }
  return all;
}

}  // namespace godwit::one_bit
