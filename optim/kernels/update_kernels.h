// The arithmetic of the optimizers that use an Exchange, on a bucket's indices [begin, end). IEEE without contraction
// in the order written here, so every instruction set, and a GPU, give the same bits.
#pragma once
#include <cstdint>

#include "engine/device.h"

namespace godwit {

// g ← g + decay·x;  with v: v ← momentum·v + g, then g ← g + momentum·v (Nesterov) or g ← v;  x ← x − lr·g.
template <class T>
struct SgdArgs {
  T* x;                   // parameters
  T* v;                   // null: no momentum
  const T* g;             // mean gradient
  T lr, decay, momentum;  // α; λ; μ
  bool nesterov;          // Nesterov momentum
};
// SgdArgs on [begin, end).
void sgd(Cpu, const SgdArgs<float>& a, int64_t begin, int64_t end);
void sgd(Cpu, const SgdArgs<double>& a, int64_t begin, int64_t end);
void sgd(Cuda, const SgdArgs<float>& a, int64_t begin, int64_t end);
void sgd(Cuda, const SgdArgs<double>& a, int64_t begin, int64_t end);

// State of Adam and LAMB, with the constants of a step.
template <class T>
struct Moments {
  T *m, *v;                // first and second moments
  T beta1, o1, beta2, o2;  // o = 1 − β
  T root_correction, eps;  // √(1−β2ᵗ) or 1; ε

  template <class Config>  // has beta1, beta2 and eps
  void set(const Config& config, T* first, T* second, double correction_of_root) {
    m = first, v = second;
    beta1 = static_cast<T>(config.beta1), o1 = static_cast<T>(1 - config.beta1);
    beta2 = static_cast<T>(config.beta2), o2 = static_cast<T>(1 - config.beta2);
    root_correction = static_cast<T>(correction_of_root), eps = static_cast<T>(config.eps);
  }
};

// g ← g + l2·x;  m ← β1·m + o1·g;  v ← β2·v + o2·g²;  x ← keep·x − step_size·m/(√v/root_correction + ε).
template <class T>
struct AdamArgs : Moments<T> {
  T* x;         // parameters
  const T* g;   // mean gradient
  T l2, keep;   // adam: λ and 1; other methods: 0 and 1 − αλ
  T step_size;  // α/(1−β1ᵗ); bert_adam: α, with root_correction 1
};
// AdamArgs on [begin, end).
void adam(Cpu, const AdamArgs<float>& a, int64_t begin, int64_t end);
void adam(Cpu, const AdamArgs<double>& a, int64_t begin, int64_t end);
void adam(Cuda, const AdamArgs<float>& a, int64_t begin, int64_t end);
void adam(Cuda, const AdamArgs<double>& a, int64_t begin, int64_t end);

// m ← β·m + o·g;  b ← β·b + o·|g|;  x ← keep·x − lr·m/(b+ε).
template <class T>
struct SoftSignArgs {
  T *x, *m, *b;              // parameters and state
  const T* g;                // mean gradient
  T keep, lr, beta, o, eps;  // keep = 1 − αλ, o = 1 − β
};
// SoftSignArgs on [begin, end).
void softsign(Cpu, const SoftSignArgs<float>& a, int64_t begin, int64_t end);
void softsign(Cpu, const SoftSignArgs<double>& a, int64_t begin, int64_t end);
void softsign(Cuda, const SoftSignArgs<float>& a, int64_t begin, int64_t end);
void softsign(Cuda, const SoftSignArgs<double>& a, int64_t begin, int64_t end);

// LAMB's unscaled step, written to g: m and v as in Adam; g ← m/correction/(√v/root_correction + ε) + decay·x.
template <class T>
struct LambArgs : Moments<T> {
  T* g;                 // mean gradient; the result
  const T* x;           // parameters
  T correction, decay;  // 1 − β1ᵗ, or 1; λ
};
// LambArgs on [begin, end).
void lamb(Cpu, const LambArgs<float>& a, int64_t begin, int64_t end);
void lamb(Cpu, const LambArgs<double>& a, int64_t begin, int64_t end);
void lamb(Cuda, const LambArgs<float>& a, int64_t begin, int64_t end);
void lamb(Cuda, const LambArgs<double>& a, int64_t begin, int64_t end);

// x ← x − rate·r for n values.
void sgd_update(Cpu, float* x, const float* r, float rate, int64_t n);
void sgd_update(Cpu, double* x, const double* r, double rate, int64_t n);
void sgd_update(Cuda, float* x, const float* r, float rate, int64_t n);
void sgd_update(Cuda, double* x, const double* r, double rate, int64_t n);

}  // namespace godwit
