#include "autograd/ops/swiglu.h"
#include "autograd/ops/swiglu_math.h"
#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

struct Value {
  template <class C>
  __device__ C operator()(C gate, C up) const {
    return detail::swiglu_value(gate, up);
  }
};

struct OfGate {
  template <class C>
  __device__ C operator()(C gate, C up, C dy) const {
    return detail::swiglu_of_gate(gate, up, dy);
  }
};

}  // namespace

void swiglu_forward(Cuda device, const Tensor& gate, const Tensor& up, const Tensor& y) {
  dispatch_float(gate.dtype(), "swiglu", [&]<class T>() {
    elementwise(device, "swiglu", gate.numel(), Value{}, y.cuda_data<T>(), gate.cuda_data<T>(), up.cuda_data<T>());
  });
}

// Writes d_gate before d_up, because d_up may be dy.
void swiglu_backward(Cuda device, const Tensor& gate, const Tensor& up, const Tensor& dy, const Tensor& d_gate,
                     const Tensor& d_up) {
  dispatch_float(gate.dtype(), "swiglu", [&]<class T>() {
    const T *g = gate.cuda_data<T>(), *from = dy.cuda_data<T>();
    elementwise(device, "swiglu", gate.numel(), OfGate{}, d_gate.cuda_data<T>(), g, up.cuda_data<T>(), from);
    elementwise(device, "swiglu", gate.numel(), Value{}, d_up.cuda_data<T>(), g, from);
  });
}

}  // namespace godwit
