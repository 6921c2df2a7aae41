// Adam's moments of the gradient; part of the kernel sources of Adam and LAMB, once per instruction set.
#ifndef GODWIT_OPTIM_MOMENTS_ARGS
#define GODWIT_OPTIM_MOMENTS_ARGS
#include <cstdint>

#include "optim/factory.h"

namespace godwit {

template <class T>
struct Moments {
  T *m, *v;
  T beta1, o1, beta2, o2;  // o = 1 − β
  T root_correction, eps;  // √(1−β2ᵗ) or 1; ε

  void set(const OptimizerConfig& config, T* first, T* second, double correction_of_root) {
    m = first, v = second;
    beta1 = static_cast<T>(config.beta1), o1 = static_cast<T>(1 - config.beta1);
    beta2 = static_cast<T>(config.beta2), o2 = static_cast<T>(1 - config.beta2);
    root_correction = static_cast<T>(correction_of_root), eps = static_cast<T>(config.eps);
  }
};

}  // namespace godwit
#endif

#if defined(GODWIT_OPTIM_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_OPTIM_MOMENTS_INL_H_
#undef GODWIT_OPTIM_MOMENTS_INL_H_
#else
#define GODWIT_OPTIM_MOMENTS_INL_H_
#endif
#include <hwy/highway.h>

#include "optim/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {

// m ← β1·m + o1·g;  v ← β2·v + o2·g²;  root = √v/root_correction + ε.
template <class T, class D>
HWY_INLINE void advance(const Moments<T>& a, D d, int64_t i, hn::Vec<D> g, hn::Vec<D>& m, hn::Vec<D>& root) {
  m = hn::Add(hn::Mul(hn::Set(d, a.beta1), hn::LoadU(d, a.m + i)), hn::Mul(hn::Set(d, a.o1), g));
  const auto v =
      hn::Add(hn::Mul(hn::Set(d, a.beta2), hn::LoadU(d, a.v + i)), hn::Mul(hn::Set(d, a.o2), hn::Mul(g, g)));
  root = hn::Add(hn::Div(hn::Sqrt(v), hn::Set(d, a.root_correction)), hn::Set(d, a.eps));
  hn::StoreU(m, d, a.m + i);
  hn::StoreU(v, d, a.v + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();
#endif
