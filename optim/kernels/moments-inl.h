// Adam's moments; included by the kernel sources of Adam and LAMB, once per instruction set.
#if defined(GODWIT_OPTIM_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_OPTIM_MOMENTS_INL_H_
#undef GODWIT_OPTIM_MOMENTS_INL_H_
#else
#define GODWIT_OPTIM_MOMENTS_INL_H_
#endif
#include <hwy/highway.h>

#include "optim/kernels/lanes-inl.h"
#include "optim/kernels/update_kernels.h"

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
