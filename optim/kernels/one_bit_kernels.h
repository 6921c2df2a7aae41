// The arithmetic of 1-bit Adam, 0/1 Adam and 1-bit LAMB. All operations are IEEE float32 without contraction, in the
// order written here, so all instruction sets and GPUs give the same bits.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

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

// to ← g where v ≠ 0, otherwise 0.
struct WhereNotZero {
  GODWIT_INLINE void operator()(int64_t, float& to, float g, float v) const { to = v == 0 ? 0.0f : g; }
};

// Where v = 0, to ← from, or √from if `root`. A saved `e` of another version may be negative.
struct WhereZero {
  bool root;
  GODWIT_INLINE void operator()(int64_t, float& to, float from, float v) const {
    if (v == 0) to = root ? std::sqrt(std::max(from, 0.0f)) : from;
  }
};

// A rank's second moment, stored in e where v = 0.
struct LateMoment {
  Average average;
  GODWIT_INLINE void operator()(int64_t, float& e, float g, float v) const {
    if (v == 0) e = average(e, g * g);
  }
};

// A later update of a frozen v = correction·v̂: v̂ ← g² where v̂ is 0, otherwise v̂ ← factor·v̂.
struct VarianceRefresh {
  float factor, correction;
  GODWIT_INLINE void operator()(int64_t, float& v, float g) const { v = v == 0 ? correction * (g * g) : factor * v; }
};

// u, clamped to ±limit. A frozen v does not follow growing gradients, so the limit bounds the steps.
GODWIT_INLINE inline float limited(float u, float limit) { return std::min(std::max(u, -limit), limit); }

// 1-bit Adam's update from the averaged momentum:
//   m ← agreed;  x ← keep·x − step_size·limited(m/(√v/root_correction + ε)).
// Where v = 0, m ← 0. In the overload without m, the averaged momentum is not stored.
struct FrozenUpdate {
  float keep, step_size, root_correction, eps, limit;
  GODWIT_INLINE void operator()(int64_t, float& x, float& m, float agreed, float v) const {
    m = v == 0 ? 0.0f : agreed;
    x = keep * x - step_size * limited(m / (std::sqrt(v) / root_correction + eps), limit);
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

// 0/1 Adam's local update: x ← keep·x − lr·limited(m/√(v+ε)). Where v = 0, m is treated as 0.
struct LocalUpdate {
  float keep, lr, eps, limit;
  GODWIT_INLINE void operator()(int64_t, float& x, float momentum, float v) const {
    const float m = v == 0 ? 0.0f : momentum;
    x = keep * x - lr * limited(m / std::sqrt(v + eps), limit);
  }
};

// 0/1 Adam's synchronization with the averaged u:
//   m ← u/rate_sum;  x ← keep·base − rate_sum·limited(m/√(v+ε));  u ← 0.
// Where v = 0, u is treated as 0. base may be x.
struct SyncUpdate {
  float keep, rate_sum, eps, limit;
  GODWIT_INLINE void operator()(int64_t, float& x, float base, float& u, float& m, float v) const {
    const float agreed = v == 0 ? 0.0f : u;
    m = agreed / rate_sum;
    x = keep * base - limited(agreed / std::sqrt(v + eps), rate_sum * limit);
    u = 0;
  }
};

// 1-bit LAMB from the averaged momentum:
//   g = (agreed − β1·m)/o1;  v_fresh ← β2·v_fresh + o2·g²;  m ← agreed;  agreed ← limited(m̂/(√v̂ + ε)).
// Returns (√v̂ + ε)/(√v̂_fresh + ε). Where v = 0, `agreed` is treated as 0. Hats denote bias correction: m̂ =
// m/correction, √v̂ = √v/root_correction, √v̂_fresh = √v_fresh/fresh_correction.
struct FrozenLambUpdate {
  float beta1, o1;
  Average variance;  // moving average of g²
  float correction, root_correction, fresh_correction, eps, limit;
  GODWIT_INLINE float operator()(float& m, float& agreed, float& v_fresh, float v) const {
    const float a = v == 0 ? 0.0f : agreed, g = (a - beta1 * m) / o1, root = std::sqrt(v) / root_correction + eps;
    v_fresh = variance(v_fresh, g * g);
    m = a;
    agreed = limited(a / correction / root, limit);
    return root / (std::sqrt(v_fresh) / fresh_correction + eps);
  }
};

// r ← p + λ·x
struct LambDecay {
  float decay;
  GODWIT_INLINE void operator()(int64_t, float& r, float x) const { r = r + decay * x; }
};

// 1-bit LAMB's factor f of a parameter, computed from the parameter's largest ratio, ‖p‖² and ‖r‖²: last ← f;  rate ←
// α·f·c̄/correction. For a parameter without decay, both norms are passed as 0.
struct LambFactor {
  double lr, correction, low, high, threshold;
  GODWIT_INLINE void operator()(float& last, float& rate, float mean, float largest, double of_p, double of_r) const {
    double factor = largest;
    if (of_r > 0) {
      const double share = std::min(1.0, std::sqrt(of_p) / std::sqrt(of_r));
      factor = factor * share + 1 - share;
    }
    const double before = last;
    factor = std::min(std::max(factor, low), high);
    factor = std::min(std::max(factor, before * (1 - threshold)), before * (1 + threshold));
    last = static_cast<float>(factor);
    rate = static_cast<float>(lr * last * (mean / correction));
  }
};

}  // namespace godwit::one_bit
