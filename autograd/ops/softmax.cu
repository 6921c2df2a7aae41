#include <limits>

#include "autograd/ops/softmax.h"
#include "engine/cuda/reduce.h"
#include "engine/vector_math.h"

namespace godwit {
namespace {

using detail::load_pack, detail::Pack, detail::store_pack;

// n flags of a mask, all 1 without a mask.
template <int n>
__device__ Pack<uint8_t, n> flags(const uint8_t* mask, int64_t at) {
  Pack<uint8_t, n> result;
  for (int k = 0; k < n; ++k) result.values[k] = mask == nullptr || mask[at + k] != 0;
  return result;
}

// One block per row.
template <class T>
__global__ void softmax_kernel(uint32_t width, bool packed, const T* x, const uint8_t* mask, T* y) {
  using C = compute_t<T>;
  const int64_t first = int64_t{blockIdx.x} * width;
  C largest = -std::numeric_limits<C>::infinity();
  for_row(x + first, width, packed, [&]<int n>(uint32_t c) {
    const auto in = load_pack<n>(x + first + c, 0);
    const auto counts = flags<n>(mask, first + c);
    for (int k = 0; k < n; ++k)
      if (counts.values[k]) largest = Larger()(largest, C(in.values[k]));
  });
  largest = block_reduce(largest, Larger());
  C sum = 0;
  for_row(x + first, width, packed, [&]<int n>(uint32_t c) {
    const auto in = load_pack<n>(x + first + c, 0);
    const auto counts = flags<n>(mask, first + c);
    for (int k = 0; k < n; ++k)
      if (counts.values[k]) sum += exp_of(C(in.values[k]) - largest);
  });
  sum = block_reduce(sum, Plus());
  for_row(x + first, width, packed, [&]<int n>(uint32_t c) {
    const auto in = load_pack<n>(x + first + c, 0);
    const auto counts = flags<n>(mask, first + c);
    Pack<T, n> to;
    for (int k = 0; k < n; ++k)
      to.values[k] = static_cast<T>(counts.values[k] ? exp_of(C(in.values[k]) - largest) / sum : C(0));
    store_pack(y + first + c, to);
  });
}

template <class T>
__global__ void softmax_backward_kernel(uint32_t width, bool packed, const T* y, const T* dy, T* dx) {
  using C = compute_t<T>;
  const int64_t first = int64_t{blockIdx.x} * width;
  C sum = 0;
  for_row(y + first, width, packed, [&]<int n>(uint32_t c) {
    const auto out = load_pack<n>(y + first + c, 0), grad = load_pack<n>(dy + first + c, 0);
    for (int k = 0; k < n; ++k) sum += C(out.values[k]) * C(grad.values[k]);
  });
  sum = block_reduce(sum, Plus());
  for_row(y + first, width, packed, [&]<int n>(uint32_t c) {
    const auto out = load_pack<n>(y + first + c, 0), grad = load_pack<n>(dy + first + c, 0);
    Pack<T, n> to;
    for (int k = 0; k < n; ++k) to.values[k] = static_cast<T>(C(out.values[k]) * (C(grad.values[k]) - sum));
    store_pack(dx + first + c, to);
  });
}

}  // namespace

void softmax_forward(Cuda device, const Tensor& x, const Tensor& mask, const Tensor& y) {
  dispatch_float(x.dtype(), "softmax", [&]<class T>() {
    const T* in = x.cuda_data<T>();
    T* to = y.cuda_data<T>();
    launch(device, "softmax", softmax_kernel<T>, x.dim(0), row_threads(x.dim(1) / kPack<T>),
           index_count("softmax", x.dim(1)), aligned_alike(in, to), in,
           mask.defined() ? mask.cuda_data<uint8_t>() : nullptr, to);
  });
}

void softmax_backward(Cuda device, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  dispatch_float(y.dtype(), "softmax", [&]<class T>() {
    const T *out = y.cuda_data<T>(), *from = dy.cuda_data<T>();
    T* to = dx.cuda_data<T>();
    launch(device, "softmax", softmax_backward_kernel<T>, y.dim(0), row_threads(y.dim(1) / kPack<T>),
           index_count("softmax", y.dim(1)), aligned_alike(out, from, to), out, from, to);
  });
}

}  // namespace godwit
