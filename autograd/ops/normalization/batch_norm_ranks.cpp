#include "autograd/ops/normalization/batch_norm_ranks.h"

namespace godwit {

using detail::CombineStatistics, detail::CombineSums, detail::PackStatistics, detail::PackSums;

namespace {

template <class F>
void for_each(int64_t n, const F& f) {
  for (int64_t i = 0; i < n; ++i) f(i);
}

}  // namespace

void batch_norm_pack_statistics(Cpu, double rows, const Tensor& mean, const Tensor& variance, const Tensor& message) {
  const int64_t channels = mean.numel();
  for_each(channels,
           PackStatistics{rows, mean.data<double>(), variance.data<double>(), message.data<double>(), channels});
}

void batch_norm_combine_statistics(Cpu, const Tensor& messages, const Tensor& rows, const Tensor& mean,
                                   const Tensor& variance) {
  const int64_t channels = mean.numel();
  for_each(channels, CombineStatistics{messages.data<double>(), messages.dim(0), channels, rows.data<double>(),
                                       mean.data<double>(), variance.data<double>()});
}

void batch_norm_pack_sums(Cpu, const Tensor& d_gamma, const Tensor& d_beta, const Tensor& message) {
  const int64_t channels = d_gamma.numel();
  dispatch_real(d_gamma.dtype(), "batch_norm", [&]<class C>() {
    for_each(channels, PackSums<C>{d_gamma.data<C>(), d_beta.data<C>(), message.data<double>(), channels});
  });
}

void batch_norm_combine_sums(Cpu, const Tensor& messages, double own_rows, const Tensor& rows, const Tensor& sums) {
  const int64_t width = sums.numel();
  dispatch_real(sums.dtype(), "batch_norm", [&]<class C>() {
    for_each(width, CombineSums<C>{messages.data<double>(), messages.dim(0), width, own_rows, rows.data<double>(),
                                   sums.data<C>()});
  });
}

}  // namespace godwit
