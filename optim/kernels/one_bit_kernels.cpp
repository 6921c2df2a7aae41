#include "optim/kernels/one_bit_kernels.h"

#include <algorithm>
#include <mutex>

#include "engine/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/kernels/one_bit_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optim/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::one_bit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using godwit::HWY_NAMESPACE::for_lanes;

// β·a + o·b
template <class D>
HWY_INLINE hn::Vec<D> average(D d, float beta, hn::Vec<D> a, float o, hn::Vec<D> b) {
  return hn::Add(hn::Mul(hn::Set(d, beta), a), hn::Mul(hn::Set(d, o), b));
}

void momentum_range(const float* m, const float* g, float* to, float beta, float o, int64_t begin, int64_t end) {
  for_lanes<float>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(average(d, beta, hn::LoadU(d, m + i), o, hn::LoadU(d, g + i)), d, to + i);
  });
}

void variance_range(float* v, const float* gradient, float beta, float o, int64_t begin, int64_t end) {
  for_lanes<float>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto g = hn::LoadU(d, gradient + i);
    hn::StoreU(average(d, beta, hn::LoadU(d, v + i), o, hn::Mul(g, g)), d, v + i);
  });
}

void frozen_range(const Frozen& a, int64_t begin, int64_t end) {
  for_lanes<float>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, a.v + i);
    const auto m = hn::IfThenZeroElse(hn::Eq(v, hn::Zero(d)), hn::LoadU(d, a.agreed + i));
    if (a.m) hn::StoreU(m, d, a.m + i);
    const auto root = hn::Add(hn::Div(hn::Sqrt(v), hn::Set(d, a.root_correction)), hn::Set(d, a.eps));
    const auto kept = hn::Mul(hn::Set(d, a.keep), hn::LoadU(d, a.x + i));
    hn::StoreU(hn::Sub(kept, hn::Mul(hn::Set(d, a.step_size), hn::Div(m, root))), d, a.x + i);
  });
}

void local_momentum_range(float* momentum, float* u, const float* g, float beta, float o, float lr, int64_t begin,
                          int64_t end) {
  for_lanes<float>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto m = average(d, beta, hn::LoadU(d, momentum + i), o, hn::LoadU(d, g + i));
    hn::StoreU(m, d, momentum + i);
    hn::StoreU(hn::Add(hn::LoadU(d, u + i), hn::Mul(hn::Set(d, lr), m)), d, u + i);
  });
}

void local_update_range(float* x, const float* momentum, const float* variance, float keep, float lr, float eps,
                        int64_t begin, int64_t end) {
  for_lanes<float>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, variance + i);
    const auto m = hn::IfThenZeroElse(hn::Eq(v, hn::Zero(d)), hn::LoadU(d, momentum + i));
    const auto change = hn::Mul(hn::Set(d, lr), hn::Div(m, hn::Sqrt(hn::Add(v, hn::Set(d, eps)))));
    hn::StoreU(hn::Sub(hn::Mul(hn::Set(d, keep), hn::LoadU(d, x + i)), change), d, x + i);
  });
}

void sync_range(const Sync& a, int64_t begin, int64_t end) {
  for_lanes<float>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, a.v + i);
    const auto u = hn::IfThenZeroElse(hn::Eq(v, hn::Zero(d)), hn::LoadU(d, a.u + i));
    hn::StoreU(hn::Div(u, hn::Set(d, a.rate_sum)), d, a.m + i);
    const auto change = hn::Div(u, hn::Sqrt(hn::Add(v, hn::Set(d, a.eps))));
    hn::StoreU(hn::Sub(hn::Mul(hn::Set(d, a.keep), hn::LoadU(d, a.base + i)), change), d, a.x + i);
    hn::StoreU(hn::Zero(d), d, a.u + i);
  });
}

float frozen_lamb_range(const FrozenLamb& a, int64_t begin, int64_t end) {
  float largest = 0;
  for_lanes<float>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto eps = hn::Set(d, a.eps), v = hn::LoadU(d, a.v + i);
    const auto m = hn::IfThenZeroElse(hn::Eq(v, hn::Zero(d)), hn::LoadU(d, a.agreed + i));
    const auto before = hn::Mul(hn::Set(d, a.beta1), hn::LoadU(d, a.m + i));
    const auto g = hn::Div(hn::Sub(m, before), hn::Set(d, a.o1));
    const auto fresh = average(d, a.beta2, hn::LoadU(d, a.v_fresh + i), a.o2, hn::Mul(g, g));
    const auto root = hn::Add(hn::Sqrt(v), eps);
    hn::StoreU(fresh, d, a.v_fresh + i);
    hn::StoreU(m, d, a.m + i);
    hn::StoreU(hn::Div(m, root), d, a.agreed + i);
    largest = std::max(largest, hn::GetLane(hn::MaxOfLanes(d, hn::Div(root, hn::Add(hn::Sqrt(fresh), eps)))));
  });
  return largest;
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::one_bit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::one_bit {

HWY_EXPORT(momentum_range);
HWY_EXPORT(variance_range);
HWY_EXPORT(frozen_range);
HWY_EXPORT(local_momentum_range);
HWY_EXPORT(local_update_range);
HWY_EXPORT(sync_range);
HWY_EXPORT(frozen_lamb_range);

void momentum(Cpu, const float* m, const float* g, float* to, float beta, float o, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(momentum_range)(m, g, to, beta, o, begin, end);
}

void variance(Cpu, float* v, const float* g, float beta, float o, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(variance_range)(v, g, beta, o, begin, end);
}

void frozen_update(Cpu, const Frozen& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(frozen_range)(a, begin, end);
}

void local_momentum(Cpu, float* m, float* u, const float* g, float beta, float o, float lr, int64_t begin,
                    int64_t end) {
  HWY_DYNAMIC_DISPATCH(local_momentum_range)(m, u, g, beta, o, lr, begin, end);
}

void local_update(Cpu, float* x, const float* m, const float* v, float keep, float lr, float eps, int64_t begin,
                  int64_t end) {
  HWY_DYNAMIC_DISPATCH(local_update_range)(x, m, v, keep, lr, eps, begin, end);
}

void sync_update(Cpu, const Sync& a, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(sync_range)(a, begin, end); }

std::vector<float> frozen_lamb(Cpu, const FrozenLamb& a, const std::vector<Segment>& ranges) {
  std::vector<float> all;
  for (const Segment& range : ranges) {
    float largest = 0;
    std::mutex mutex;
    parallel_for(
        range.numel(), 1 << 15,
        [&](int64_t begin, int64_t end) {
          const float own = HWY_DYNAMIC_DISPATCH(frozen_lamb_range)(a, range.begin + begin, range.begin + end);
          std::lock_guard lock(mutex);
          largest = std::max(largest, own);
        },
        32);
    all.push_back(largest);
  }
  return all;
}

}  // namespace godwit::one_bit
#endif
