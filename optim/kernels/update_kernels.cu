#include "optim/kernels/update_kernels.h"

#include <cmath>

#include "engine/cuda/update.h"

namespace godwit {
namespace {

template <class T>
struct SgdUpdate {
  T lr, decay;
  __device__ void operator()(int64_t, T& x, T g) const { x = x - lr * (g + decay * x); }
};

template <class T>
struct MomentumUpdate {
  T lr, decay, momentum;
  bool nesterov;
  __device__ void operator()(int64_t, T& x, T& v, T gradient) const {
    const T g = gradient + decay * x;
    v = momentum * v + g;
    x = x - lr * (nesterov ? g + momentum * v : v);
  }
};

template <class T>
struct AdamStep {
  AdamArgs<T> a;
  __device__ void operator()(int64_t, T& x, T& m, T& v, T gradient) const {
    const T g = gradient + a.l2 * x;
    m = a.beta1 * m + a.o1 * g;
    v = a.beta2 * v + a.o2 * (g * g);
    const T root = std::sqrt(v) / a.root_correction + a.eps;
    x = a.keep * x - a.step_size * (m / root);
  }
};

template <class T>
struct SoftSignStep {
  SoftSignArgs<T> a;
  __device__ void operator()(int64_t, T& x, T& m, T& b, T g) const {
    m = a.beta * m + a.o * g;
    b = a.beta * b + a.o * std::abs(g);
    x = a.keep * x - a.lr * (m / (b + a.eps));
  }
};

template <class T>
struct LambStep {
  LambArgs<T> a;
  __device__ void operator()(int64_t, T& gradient, T& m, T& v, T x) const {
    const T g = gradient;
    m = a.beta1 * m + a.o1 * g;
    v = a.beta2 * v + a.o2 * (g * g);
    const T root = std::sqrt(v) / a.root_correction + a.eps;
    gradient = m / a.correction / root + a.decay * x;
  }
};

template <class T>
struct SubtractScaled {
  T rate;
  __device__ void operator()(int64_t, T& x, T r) const { x = x - rate * r; }
};

template <class T>
void run(Cuda device, const SgdArgs<T>& a, int64_t begin, int64_t end) {
  if (!a.v) return update_each(device, "sgd", begin, end, SgdUpdate<T>{a.lr, a.decay}, a.x, a.g);
  const MomentumUpdate<T> step{a.lr, a.decay, a.momentum, a.nesterov};
  update_each(device, "sgdm", begin, end, step, a.x, a.v, a.g);
}

template <class T>
void run(Cuda device, const AdamArgs<T>& a, int64_t begin, int64_t end) {
  update_each(device, "adam", begin, end, AdamStep<T>{a}, a.x, a.m, a.v, a.g);
}

template <class T>
void run(Cuda device, const SoftSignArgs<T>& a, int64_t begin, int64_t end) {
  update_each(device, "softsignsgd", begin, end, SoftSignStep<T>{a}, a.x, a.m, a.b, a.g);
}

template <class T>
void run(Cuda device, const LambArgs<T>& a, int64_t begin, int64_t end) {
  update_each(device, "lamb", begin, end, LambStep<T>{a}, a.g, a.m, a.v, a.x);
}

}  // namespace

void sgd(Cuda device, const SgdArgs<float>& a, int64_t begin, int64_t end) { run(device, a, begin, end); }
void sgd(Cuda device, const SgdArgs<double>& a, int64_t begin, int64_t end) { run(device, a, begin, end); }
void adam(Cuda device, const AdamArgs<float>& a, int64_t begin, int64_t end) { run(device, a, begin, end); }
void adam(Cuda device, const AdamArgs<double>& a, int64_t begin, int64_t end) { run(device, a, begin, end); }
void softsign(Cuda device, const SoftSignArgs<float>& a, int64_t begin, int64_t end) { run(device, a, begin, end); }
void softsign(Cuda device, const SoftSignArgs<double>& a, int64_t begin, int64_t end) { run(device, a, begin, end); }
void lamb(Cuda device, const LambArgs<float>& a, int64_t begin, int64_t end) { run(device, a, begin, end); }
void lamb(Cuda device, const LambArgs<double>& a, int64_t begin, int64_t end) { run(device, a, begin, end); }

void sgd_update(Cuda device, float* x, const float* r, float rate, int64_t n) {
  update_each(device, "lamb", 0, n, SubtractScaled<float>{rate}, x, r);
}
void sgd_update(Cuda device, double* x, const double* r, double rate, int64_t n) {
  update_each(device, "lamb", 0, n, SubtractScaled<double>{rate}, x, r);
}

}  // namespace godwit
