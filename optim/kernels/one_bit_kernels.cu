#include "optim/kernels/one_bit_kernels.h"

#include <bit>
#include <cmath>

#include "engine/cuda/reduce.h"
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

__global__ void frozen_lamb_kernel(FrozenLamb a, int64_t begin, int64_t end, uint32_t* largest) {
  float most = 0;
  for (int64_t i = begin + grid_thread(); i < end; i += grid_threads()) {
    const float v = a.v[i], m = v == 0 ? 0.0f : a.agreed[i];
    const float g = (m - a.beta1 * a.m[i]) / a.o1;
    const float fresh = a.beta2 * a.v_fresh[i] + a.o2 * (g * g);
    const float root = std::sqrt(v) + a.eps, ratio = root / (std::sqrt(fresh) + a.eps);
    a.v_fresh[i] = fresh;
    a.m[i] = m;
    a.agreed[i] = m / root;
    if (ratio > most) most = ratio;
  }
  most = block_reduce(most, Larger{});
  // The bits of positive floats have the order of their values.
  if (threadIdx.x == 0) atomicMax(largest, std::bit_cast<uint32_t>(most));
}

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


std::vector<float> frozen_lamb(Cuda device, const FrozenLamb& a, const std::vector<Segment>& ranges) {
  const Tensor largest = Tensor::zeros({static_cast<int64_t>(ranges.size())}, DType::u32);
  for (size_t i = 0; i < ranges.size(); ++i)
    launch(device, "one_bit_lamb", frozen_lamb_kernel, blocks_for(device, ranges[i].numel()), kBlock, a,
           ranges[i].begin, ranges[i].end, largest.cuda_data<uint32_t>() + i);
  std::vector<float> all;
  for (const uint32_t bits : largest.to_vector<uint32_t>()) all.push_back(std::bit_cast<float>(bits));
  return all;
}

}  // namespace godwit::one_bit
