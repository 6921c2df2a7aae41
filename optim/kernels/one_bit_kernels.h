// The arithmetic of 1-bit Adam, 0/1 Adam and 1-bit LAMB. IEEE float32 without contraction in the order written here, so
// every instruction set, and a GPU, give the same bits.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "comm/parallel/bucket.h"
#include "engine/inline.h"

// Kernels of 1-bit Adam, 0/1 Adam and 1-bit LAMB.
namespace godwit::one_bit {

// β·a + o·b
struct Average {
  float beta, o;
  GODWIT_INLINE float operator()(float a, float b) const { return beta * a + o * b; }
};

struct MomentumUpdate {
  Average average;
  GODWIT_INLINE void operator()(int64_t, float& to, float m, float g) const { to = average(m, g); }
};

struct VarianceUpdate {
  Average average;
  GODWIT_INLINE void operator()(int64_t, float& v, float g) const { v = average(v, g * g); }
};

// 1-bit Adam's update from the averaged momentum: x ← keep·x − step_size·m/(√v/root_correction + ε), m ← agreed; where
// v = 0: m ← 0, x ← keep·x. Without m, the averaged momentum is not kept.
struct FrozenUpdate {
  float keep, step_size, root_correction, eps;
  GODWIT_INLINE void operator()(int64_t, float& x, float& m, float agreed, float v) const {
    m = v == 0 ? 0.0f : agreed;
    x = keep * x - step_size * (m / (std::sqrt(v) / root_correction + eps));
  }
  GODWIT_INLINE void operator()(int64_t i, float& x, float agreed, float v) const {
    float m;
    (*this)(i, x, m, agreed, v);
  }
};

// 0/1 Adam's local step.
struct LocalMomentum {
  Average average;
  float lr;
  GODWIT_INLINE void operator()(int64_t, float& m, float& u, float g) const {
    m = average(m, g);
    u = u + lr * m;
  }
};

// x ← keep·x − lr·m/√(v+ε); where v = 0: x ← keep·x.
struct LocalUpdate {
  float keep, lr, eps;
  GODWIT_INLINE void operator()(int64_t, float& x, float momentum, float v) const {
    const float m = v == 0 ? 0.0f : momentum;
    x = keep * x - lr * (m / std::sqrt(v + eps));
  }
};

// 0/1 Adam's synchronization with the averaged u: x ← keep·base − u/√(v+ε);  m ← u/rate_sum;  u ← 0. Where v = 0, u
// counts as 0. base may be x.
struct SyncUpdate {
  float keep, rate_sum, eps;
  GODWIT_INLINE void operator()(int64_t, float& x, float base, float& u, float& m, float v) const {
    const float agreed = v == 0 ? 0.0f : u;
    m = agreed / rate_sum;
    x = keep * base - agreed / std::sqrt(v + eps);
    u = 0;
  }
};

// 1-bit LAMB from the averaged momentum: a ← agreed, or 0 where v = 0;  g = (a − β1·m)/o1, the implied gradient;
// v_fresh ← β2·v_fresh + o2·g²;  m ← a;  agreed ← a/(√v + ε). Returns (√v + ε)/(√v_fresh + ε).
struct FrozenLambUpdate {
  float beta1, o1;
  Average variance;  // of g²
  float eps;
  GODWIT_INLINE float operator()(float& m, float& agreed, float& v_fresh, float v) const {
    const float a = v == 0 ? 0.0f : agreed, g = (a - beta1 * m) / o1, root = std::sqrt(v) + eps;
    v_fresh = variance(v_fresh, g * g);
    m = a;
    agreed = a / root;
    return root / (std::sqrt(v_fresh) + eps);
  }
};

// Applies f to the arrays on each range and returns the maximum over it; on a GPU the host waits for it.
struct FrozenLamb {
  FrozenLambUpdate f;
  float *m, *agreed, *v_fresh;
  const float* v;
};
std::vector<float> frozen_lamb(Cpu, const FrozenLamb& a, const std::vector<Segment>& ranges);
std::vector<float> frozen_lamb(Cuda, const FrozenLamb& a, const std::vector<Segment>& ranges);

}  // namespace godwit::one_bit
