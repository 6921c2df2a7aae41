#include "autograd/ops/attention/self_attention.h"
#include "engine/cuda/rows.h"

namespace godwit {
namespace {

using detail::load_pack, detail::store_pack;

// Copies packs of n elements; `width` is the number of packs per row of q.
template <int n, class T>
__global__ void attention_split_kernel(uint32_t packs, uint32_t width, const T* from, T* q, T* k, T* v) {
  for (uint32_t at = grid_thread32(); at < packs; at += grid_threads32()) {
    const int64_t in = at + int64_t{at / width} * 2 * width, to = int64_t{at} * n;
    store_pack(q + to, load_pack<n>(from, in));
    store_pack(k + to, load_pack<n>(from, in + width));
    store_pack(v + to, load_pack<n>(from, in + 2 * width));
  }
}

}  // namespace

void split_qkv(Cuda device, const Tensor& qkv, const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t width = qkv.dim(1) / 3;
  dispatch_float(qkv.dtype(), "split_qkv", [&]<class T>() {
    by_packs<T>(
        width,
        [&]<int n>() {
          const uint32_t packs = index_count("split_qkv", q.numel() / n);
          launch(device, "split_qkv", attention_split_kernel<n, T>, blocks_for(device, packs), kBlock, packs,
                 static_cast<uint32_t>(width / n), qkv.cuda_data<T>(), q.cuda_data<T>(), k.cuda_data<T>(),
                 v.cuda_data<T>());
        },
        q.address(), k.address(), v.address(), qkv.address());
  });
}

}  // namespace godwit
