#include <cmath>
#include <limits>

#include "autograd/ops/softmax_cross_entropy.h"
#include "engine/cuda/reduce.h"
#include "engine/vector_math.h"

namespace godwit {
namespace {

// The label of rows to ignore, if any.
struct Ignore {
  bool any;
  int32_t label;
  explicit Ignore(std::optional<int32_t> ignore) : any(ignore.has_value()), label(ignore.value_or(0)) {}
  __device__ bool operator()(int32_t other) const { return any && other == label; }
};

using detail::load_pack, detail::Pack, detail::store_pack;

// One block per row: the maximum, then the sum of exp(x - largest): per thread in compute_t<T>, over the threads in
// float64. Rows are `stride` elements apart.
template <class T>
__global__ void cross_entropy_forward_kernel(uint32_t classes, uint32_t stride, const T* logits, const int32_t* labels,
                                             double smoothing, Ignore ignore, double* losses, double* log_sums) {
  using C = compute_t<T>;
  constexpr C kNone = -std::numeric_limits<C>::infinity();
  const int64_t row = blockIdx.x;
  const T* x = logits + row * stride;
  const int32_t label = labels[row];
  if (ignore(label)) {
    if (threadIdx.x == 0) losses[row] = log_sums[row] = 0;
    return;
  }
  C largest = kNone;
  for_row(x, classes, true, [&]<int n>(uint32_t c) {
    const auto in = load_pack<n>(x + c, 0);
    for (int k = 0; k < n; ++k) largest = Larger()(largest, static_cast<C>(in.values[k]));
  });
  largest = block_reduce(largest, Larger());
  const C base = largest > kNone ? largest : C(0);
  C share = 0;
  for_row(x, classes, true, [&]<int n>(uint32_t c) {
    const auto in = load_pack<n>(x + c, 0);
    for (int k = 0; k < n; ++k) share += exp_below(static_cast<C>(in.values[k]) - base);
  });
  const double sum = block_reduce(static_cast<double>(share), Plus());
  const double log_sum = static_cast<double>(largest) + std::log(sum);
  double loss = (1 - smoothing) * (log_sum - static_cast<double>(x[label]));
  if (smoothing != 0) {  // with smoothing 0, a class at -inf must not contribute
    double all = 0;
    for_row(x, classes, true, [&]<int n>(uint32_t c) {
      const auto in = load_pack<n>(x + c, 0);
      for (int k = 0; k < n; ++k) all += log_sum - static_cast<double>(in.values[k]);
    });
    loss += smoothing / static_cast<double>(classes) * block_reduce(all, Plus());
  }
  if (threadIdx.x == 0) {
    losses[row] = loss;
    log_sums[row] = log_sum;
  }
}

// Uses one block.
template <class T>
__global__ void cross_entropy_mean_kernel(int64_t n, const double* losses, double share, T* mean) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += losses[i] * share;
  sum = block_reduce(sum, Plus());
  if (threadIdx.x == 0) *mean = static_cast<T>(sum);
}

template <class T>
__global__ void cross_entropy_backward_kernel(uint32_t classes, bool packed, const T* logits, const int32_t* labels,
                                              double smoothing, Ignore ignore, const double* log_sums,
                                              const compute_t<T>* dy, double share, T* d_logits, int64_t first) {
  using C = compute_t<T>;
  const int64_t row = blockIdx.x;
  const T* x = logits + row * classes;
  T* dx = d_logits + row * classes;
  const int32_t label = labels[row];
  const bool left_out = ignore(label);
  const double scale = static_cast<double>(*dy) * share;
  const C factor = static_cast<C>(scale), at_label = static_cast<C>(scale * (1 - smoothing));
  const C off = static_cast<C>(smoothing / static_cast<double>(classes));
  const C most = static_cast<C>(log_sums[row]), rest = static_cast<C>(static_cast<double>(most) - log_sums[row]);
  const int64_t own_label = label - first;
  for_row(x, classes, packed, [&]<int n>(uint32_t c) {
    const auto in = load_pack<n>(x + c, 0);
    Pack<T, n> to;
    for (int k = 0; k < n; ++k) {
      const C all = factor * (exp_below(static_cast<C>(in.values[k]) - most, rest) - off);
      to.values[k] = static_cast<T>(left_out ? C(0) : c + k == own_label ? all - at_label : all);
    }
    store_pack(dx + c, to);
  });
}

// One block per row.
template <class T>
__global__ void cross_entropy_hits_kernel(int64_t classes, const T* logits, const int32_t* labels, int k,
                                          double* hits) {
  const T* x = logits + blockIdx.x * classes;
  const int64_t label = labels[blockIdx.x];
  int before = 0;
  for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) before += goes_before(x, c, label);
  before = block_reduce(before, Plus());
  if (threadIdx.x == 0) hits[blockIdx.x] = before < k && x[label] == x[label] ? 1 : 0;
}

}  // namespace

void softmax_cross_entropy_forward(Cuda device, const Tensor& logits, const Tensor& labels, double smoothing,
                                   std::optional<int32_t> ignore, const Tensor& losses, const Tensor& log_sums,
                                   std::optional<int64_t> classes) {
  dispatch_float(logits.dtype(), "softmax_cross_entropy", [&]<class T>() {
    const uint32_t stride = index_count("softmax_cross_entropy", logits.dim(1));
    launch(device, "softmax_cross_entropy", cross_entropy_forward_kernel<T>, logits.dim(0),
           row_threads(stride / kPack<T>), index_count("softmax_cross_entropy", classes.value_or(stride)), stride,
           logits.cuda_data<T>(), labels.cuda_data<int32_t>(), smoothing, Ignore(ignore), losses.cuda_data<double>(),
           log_sums.cuda_data<double>());
  });
}

void mean_loss(Cuda device, const Tensor& losses, double share, const Tensor& mean) {
  dispatch_real(mean.dtype(), "mean_loss", [&]<class T>() {
    launch(device, "mean_loss", cross_entropy_mean_kernel<T>, 1, kBlock, losses.numel(), losses.cuda_data<double>(),
           share, mean.cuda_data<T>());
  });
}

void top_k_hits(Cuda device, const Tensor& logits, const Tensor& labels, int k, const Tensor& hits) {
  dispatch_real(logits.dtype(), "top_k_correct", [&]<class T>() {
    launch(device, "top_k_correct", cross_entropy_hits_kernel<T>, logits.dim(0), row_threads(logits.dim(1)),
           logits.dim(1), logits.cuda_data<T>(), labels.cuda_data<int32_t>(), k, hits.cuda_data<double>());
  });
}

void softmax_cross_entropy_backward(Cuda device, const Tensor& logits, const Tensor& labels, double smoothing,
                                    std::optional<int32_t> ignore, const Tensor& log_sums, const Tensor& dy,
                                    double share, const Tensor& d_logits, int64_t first) {
  dispatch_float(logits.dtype(), "softmax_cross_entropy", [&]<class T>() {
    const T* from = logits.cuda_data<T>();
    T* to = d_logits.cuda_data<T>();
    launch(device, "softmax_cross_entropy", cross_entropy_backward_kernel<T>, logits.dim(0),
           row_threads(logits.dim(1) / kPack<T>), index_count("softmax_cross_entropy", logits.dim(1)),
           aligned_alike(from, to), from, labels.cuda_data<int32_t>(), smoothing, Ignore(ignore),
           log_sums.cuda_data<double>(), dy.cuda_data<compute_t<T>>(), share, to, first);
  });
}

}  // namespace godwit
