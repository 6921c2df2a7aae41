#include "autograd/ops/attention/self_attention.h"
#include "engine/cuda/launch.h"

namespace godwit {
namespace {

template <class T>
__global__ void split_kernel(int64_t n, int64_t width, const T* from, T* q, T* k, T* v) {
  for (int64_t at = grid_thread(); at < n; at += grid_threads()) {
    const T* in = from + (at / width * 3 * width + at % width);
    q[at] = in[0];
    k[at] = in[width];
    v[at] = in[2 * width];
  }
}

template <class T>
__global__ void join_kernel(int64_t n, int64_t width, const T* q, const T* k, const T* v, T* to) {
  for (int64_t at = grid_thread(); at < n; at += grid_threads()) {
    T* out = to + (at / width * 3 * width + at % width);
    out[0] = q[at];
    out[width] = k[at];
    out[2 * width] = v[at];
  }
}

}  // namespace

void split_qkv(Cuda device, const Tensor& qkv, const Tensor& q, const Tensor& k, const Tensor& v) {
  dispatch_float(qkv.dtype(), "split_qkv", [&]<class T>() {
    launch(device, "split_qkv", split_kernel<T>, blocks_for(device, q.numel()), kBlock, q.numel(), qkv.dim(1) / 3,
           qkv.cuda_data<T>(), q.cuda_data<T>(), k.cuda_data<T>(), v.cuda_data<T>());
  });
}

void join_qkv(Cuda device, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& qkv) {
  dispatch_float(qkv.dtype(), "join_qkv", [&]<class T>() {
    launch(device, "join_qkv", join_kernel<T>, blocks_for(device, q.numel()), kBlock, q.numel(), qkv.dim(1) / 3,
           q.cuda_data<T>(), k.cuda_data<T>(), v.cuda_data<T>(), qkv.cuda_data<T>());
  });
}

}  // namespace godwit
