// The arithmetic of 1-bit Adam, 0/1 Adam and 1-bit LAMB on flat float32 memory, on indices [begin, end). IEEE float32
// without contraction in the order written here, so every instruction set, and a GPU, give the same bits.
#pragma once
#include <cstdint>
#include <vector>

#include "comm/parallel/bucket.h"
#include "engine/device.h"

// Kernels of 1-bit Adam, 0/1 Adam and 1-bit LAMB.
namespace godwit::one_bit {

// to ← β·m + o·g
void momentum(Cpu, const float* m, const float* g, float* to, float beta, float o, int64_t begin, int64_t end);
void momentum(Cuda, const float* m, const float* g, float* to, float beta, float o, int64_t begin, int64_t end);
// v ← β·v + o·g²
void variance(Cpu, float* v, const float* g, float beta, float o, int64_t begin, int64_t end);
void variance(Cuda, float* v, const float* g, float beta, float o, int64_t begin, int64_t end);

// 1-bit Adam's update from the averaged momentum: x ← keep·x − step_size·m/(√v/root_correction + ε), m ← agreed; where
// v = 0: m ← 0, x ← keep·x. m may be null.
struct Frozen {
  float *x, *m;                                 // parameters; momentum
  const float *agreed, *v;                      // averaged momentum; second moment
  float keep, step_size, root_correction, eps;  // see above
};
// Frozen on [begin, end).
void frozen_update(Cpu, const Frozen& a, int64_t begin, int64_t end);
void frozen_update(Cuda, const Frozen& a, int64_t begin, int64_t end);

// 0/1 Adam's local step: m ← β·m + o·g;  u ← u + lr·m.
void local_momentum(Cpu, float* m, float* u, const float* g, float beta, float o, float lr, int64_t begin, int64_t end);
void local_momentum(Cuda, float* m, float* u, const float* g, float beta, float o, float lr, int64_t begin,
                    int64_t end);
// x ← keep·x − lr·m/√(v+ε); where v = 0: x ← keep·x.
void local_update(Cpu, float* x, const float* m, const float* v, float keep, float lr, float eps, int64_t begin,
                  int64_t end);
void local_update(Cuda, float* x, const float* m, const float* v, float keep, float lr, float eps, int64_t begin,
                  int64_t end);
// 0/1 Adam's synchronization with the averaged u: x ← keep·base − u/√(v+ε);  m ← u/rate_sum;  u ← 0. Where v = 0, u
// counts as 0. base may be x.
struct Sync {
  float* x;                   // parameters
  const float* base;          // parameters after the last synchronization
  float *u, *m;               // local sum of steps; momentum
  const float* v;             // second moment
  float keep, rate_sum, eps;  // see above
};
// Sync on [begin, end), with the averaged u in `u`.
void sync_update(Cpu, const Sync& a, int64_t begin, int64_t end);
void sync_update(Cuda, const Sync& a, int64_t begin, int64_t end);

// 1-bit LAMB from the averaged momentum: a ← agreed, or 0 where v = 0;  g = (a − β1·m)/o1, the implied gradient;
// v_fresh ← β2·v_fresh + o2·g²;  m ← a;  agreed ← a/(√v + ε). Returns the maximum of (√v + ε)/(√v_fresh + ε) over each
// range; on a GPU the host waits for it.
struct FrozenLamb {
  float *m, *agreed, *v_fresh;      // momentum; averaged momentum; running second moment
  const float* v;                   // frozen second moment
  float beta1, o1, beta2, o2, eps;  // o = 1 − β; ε
};
// FrozenLamb on each range, with the maximum of each.
std::vector<float> frozen_lamb(Cpu, const FrozenLamb& a, const std::vector<Segment>& ranges);
std::vector<float> frozen_lamb(Cuda, const FrozenLamb& a, const std::vector<Segment>& ranges);

}  // namespace godwit::one_bit
