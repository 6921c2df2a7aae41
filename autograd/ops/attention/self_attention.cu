#include "autograd/ops/attention/self_attention.h"
#include "engine/cuda/rows.h"

namespace godwit {
namespace {

using detail::load_pack, detail::store_pack;

// The kernels copy packs of n elements; `width` is the number of packs per row of q.
template <int n, class T>
__global__ void split_kernel(uint32_t packs, uint32_t width, const T* from, T* q, T* k, T* v) {
  for (uint32_t at = grid_thread32(); at < packs; at += grid_threads32()) {
    const int64_t in = at + int64_t{at / width} * 2 * width, to = int64_t{at} * n;
    store_pack(q + to, load_pack<n>(from, in));
    store_pack(k + to, load_pack<n>(from, in + width));
    store_pack(v + to, load_pack<n>(from, in + 2 * width));
  }
}

template <int n, class T>
__global__ void join_kernel(uint32_t packs, uint32_t width, const T* q, const T* k, const T* v, T* to) {
  for (uint32_t at = grid_thread32(); at < packs; at += grid_threads32()) {
    T* const out = to + (at + int64_t{at / width} * 2 * width) * n;
    store_pack(out, load_pack<n>(q, at));
    store_pack(out + int64_t{width} * n, load_pack<n>(k, at));
    store_pack(out + int64_t{2} * width * n, load_pack<n>(v, at));
  }
}

// Calls f.operator()<n>(packs, packs per row).
template <class T, class F>
void for_packs(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& qkv,
               const F& f) {
  const int64_t width = qkv.dim(1) / 3;
  by_packs<T>(
      width, [&]<int n>() { f.template operator()<n>(index_count(operation, q.numel() / n), width / n); }, q.address(),
      k.address(), v.address(), qkv.address());
}

}  // namespace

void split_qkv(Cuda device, const Tensor& qkv, const Tensor& q, const Tensor& k, const Tensor& v) {
  dispatch_float(qkv.dtype(), "split_qkv", [&]<class T>() {
    for_packs<T>("split_qkv", q, k, v, qkv, [&]<int n>(uint32_t packs, int64_t width) {
      launch(device, "split_qkv", split_kernel<n, T>, blocks_for(device, packs), kBlock, packs, width,
             qkv.cuda_data<T>(), q.cuda_data<T>(), k.cuda_data<T>(), v.cuda_data<T>());
    });
  });
}

void join_qkv(Cuda device, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& qkv) {
  dispatch_float(qkv.dtype(), "join_qkv", [&]<class T>() {
    for_packs<T>("join_qkv", q, k, v, qkv, [&]<int n>(uint32_t packs, int64_t width) {
      launch(device, "join_qkv", join_kernel<n, T>, blocks_for(device, packs), kBlock, packs, width, q.cuda_data<T>(),
             k.cuda_data<T>(), v.cuda_data<T>(), qkv.cuda_data<T>());
    });
  });
}

}  // namespace godwit
