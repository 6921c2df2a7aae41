#include "autograd/ops/normalization/batch_norm_ranks.h"
#include "engine/cuda/launch.h"

namespace godwit {

using detail::CombineStatistics, detail::CombineSums, detail::PackStatistics, detail::PackSums;

namespace {

template <class F>
__global__ void batch_norm_each_kernel(int64_t n, F f) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) f(i);
}

template <class F>
void for_each(Cuda device, int64_t n, const F& f) {
  launch(device, "batch_norm", batch_norm_each_kernel<F>, blocks_for(device, n, 64), 64, n, f);
}

}  // namespace

void batch_norm_pack_statistics(Cuda device, double rows, const Tensor& mean, const Tensor& variance,
                                const Tensor& message) {
  const int64_t channels = mean.numel();
  for_each(device, channels,
           PackStatistics{rows, mean.cuda_data<double>(), variance.cuda_data<double>(), message.cuda_data<double>(),
                          channels});
}

void batch_norm_combine_statistics(Cuda device, const Tensor& messages, const Tensor& rows, const Tensor& mean,
                                   const Tensor& variance) {
  const int64_t channels = mean.numel();
  for_each(device, channels,
           CombineStatistics{messages.cuda_data<double>(), messages.dim(0), channels, rows.cuda_data<double>(),
                             mean.cuda_data<double>(), variance.cuda_data<double>()});
}

void batch_norm_pack_sums(Cuda device, const Tensor& d_gamma, const Tensor& d_beta, const Tensor& message) {
  const int64_t channels = d_gamma.numel();
  dispatch_real(d_gamma.dtype(), "batch_norm", [&]<class C>() {
    for_each(device, channels,
             PackSums<C>{d_gamma.cuda_data<C>(), d_beta.cuda_data<C>(), message.cuda_data<double>(), channels});
  });
}

void batch_norm_combine_sums(Cuda device, const Tensor& messages, double own_rows, const Tensor& rows,
                             const Tensor& sums) {
  const int64_t width = sums.numel();
  dispatch_real(sums.dtype(), "batch_norm", [&]<class C>() {
    for_each(device, width,
             CombineSums<C>{messages.cuda_data<double>(), messages.dim(0), width, own_rows, rows.cuda_data<double>(),
                            sums.cuda_data<C>()});
  });
}

}  // namespace godwit
