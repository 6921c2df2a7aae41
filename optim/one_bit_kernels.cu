#include "optim/one_bit_kernels.h"

#include <cmath>

#include "engine/cuda/update.h"

namespace godwit::one_bit {
namespace {

// β·a + o·b
struct Average {
  float beta, o;
  __device__ float operator()(float a, float b) const { return beta * a + o * b; }
};

struct Momentum {
  Average average;
  __device__ void operator()(int64_t, float& to, float m, float g) const { to = average(m, g); }
};

struct Variance {
  Average average;
  __device__ void operator()(int64_t, float& v, float g) const { v = average(v, g * g); }
};

struct FrozenUpdate {
  Frozen a;
  __device__ void operator()(int64_t, float& x, float& m, float agreed, float v) const {
    m = v == 0 ? 0.0f : agreed;
    x = a.keep * x - a.step_size * (m / (std::sqrt(v) / a.root_correction + a.eps));
  }
  __device__ void operator()(int64_t i, float& x, float agreed, float v) const {
    float m;
    (*this)(i, x, m, agreed, v);
  }
};

struct LocalMomentum {
  Average average;
  float lr;
  __device__ void operator()(int64_t, float& m, float& u, float g) const {
    m = average(m, g);
    u = u + lr * m;
  }
};

struct LocalUpdate {
  float keep, lr, eps;
  __device__ void operator()(int64_t, float& x, float momentum, float v) const {
    const float m = v == 0 ? 0.0f : momentum;
    x = keep * x - lr * (m / std::sqrt(v + eps));
  }
};

struct SyncUpdate {
  Sync a;
  __device__ void operator()(int64_t, float& x, float base, float& u, float& m, float v) const {
    const float agreed = v == 0 ? 0.0f : u;
    m = agreed / a.rate_sum;
    x = a.keep * base - agreed / std::sqrt(v + a.eps);
    u = 0;
  }
};

}  // namespace

void momentum(Cuda device, const float* m, const float* g, float* to, float beta, float o, int64_t begin, int64_t end) {
  update_each(device, "momentum", begin, end, Momentum{{beta, o}}, to, m, g);
}

void variance(Cuda device, float* v, const float* g, float beta, float o, int64_t begin, int64_t end) {
  update_each(device, "variance", begin, end, Variance{{beta, o}}, v, g);
}

void frozen_update(Cuda device, const Frozen& a, int64_t begin, int64_t end) {
  if (a.m) update_each(device, "one_bit_adam", begin, end, FrozenUpdate{a}, a.x, a.m, a.agreed, a.v);
  else update_each(device, "one_bit_adam", begin, end, FrozenUpdate{a}, a.x, a.agreed, a.v);
}

void local_momentum(Cuda device, float* m, float* u, const float* g, float beta, float o, float lr, int64_t begin,
                    int64_t end) {
  update_each(device, "zero_one_adam", begin, end, LocalMomentum{{beta, o}, lr}, m, u, g);
}

void local_update(Cuda device, float* x, const float* m, const float* v, float keep, float lr, float eps, int64_t begin,
                  int64_t end) {
  update_each(device, "zero_one_adam", begin, end, LocalUpdate{keep, lr, eps}, x, m, v);
}

void sync_update(Cuda device, const Sync& a, int64_t begin, int64_t end) {
  update_each(device, "zero_one_adam", begin, end, SyncUpdate{a}, a.x, a.base, a.u, a.m, a.v);
}

}  // namespace godwit::one_bit
