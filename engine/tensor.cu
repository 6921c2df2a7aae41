#include "engine/cuda/elementwise.h"
#include "engine/cuda/graph.h"
#include "engine/tensor_kernels.h"

namespace godwit::detail {
namespace {

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

struct Same {
  template <class C>
  __device__ C operator()(C value) const {
    return value;
  }
};

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f64;
}

// Calls f.operator()<T>() for the floating-point types.
template <class F>
void dispatch_floats(DType dtype, F&& f) {
  if (dtype == DType::f16) f.template operator()<f16>();
  else dispatch_float(dtype, "convert", f);
}

}  // namespace

void zero(Cuda device, const Tensor& x) {
  cuda_check(cudaMemsetAsync(x.address(), 0, static_cast<size_t>(x.bytes()), device.stream), "cudaMemsetAsync");
}

void fill(Cuda device, const Tensor& x, double value) {
  dispatch_numeric(x.dtype(), [&]<class T>() {
    elementwise(device, "fill", x.numel(), Constant<T>{converted<T>(value)}, x.cuda_data<T>());
  });
}

// Integer conversions are rare and small, and run on the CPU.
void convert(Cuda device, const Tensor& x, const Tensor& y) {
  if (!is_float(x.dtype()) || !is_float(y.dtype())) return y.copy_from(x.to(kCpu).to(y.dtype()));
  dispatch_floats(x.dtype(), [&]<class From>() {
    dispatch_floats(y.dtype(), [&]<class To>() {
      elementwise(device, "convert", x.numel(), Same{}, y.cuda_data<To>(), x.cuda_data<From>());
    });
  });
}

void copy(Cuda device, const Tensor& x, const Tensor& y) {
  const auto bytes = static_cast<size_t>(x.bytes());
  GraphCapture* const graph_capture = device.context->graph_capture;
  if (!x.device().is_cuda() && graph_capture) return graph_capture->copy(x, y);
  if (!x.device().is_cuda()) return device.context->staging.copy(x.address(), y.address(), x.bytes(), device.stream);
  if (y.device().is_cuda()) {
    check(x.device() == y.device(), "copy: from ", x.device(), " to ", y.device(), "; copy between GPUs by a Group");
    cuda_check(cudaMemcpyAsync(y.address(), x.address(), bytes, cudaMemcpyDeviceToDevice, device.stream),
               "cudaMemcpyAsync");
    return;
  }
  check(!graph_capture, "the host cannot read a value on ", x.device(), ", ", x.dtype(), " ", x.shape(),
        ", during CUDA graph capture; read it after the step, or disable CUDA graphs");
  cuda_check(cudaMemcpyAsync(y.address(), x.address(), bytes, cudaMemcpyDeviceToHost, device.stream),
             "cudaMemcpyAsync");
  device.context->synchronize();
}

}  // namespace godwit::detail
