// Synchronized batch norm: packing, exchanging and combining per-rank statistics on the device.
#pragma once
#include "autograd/ops/normalization/batch_norm.h"
#include "engine/inline.h"

namespace godwit {

// Packs message [1 + 2c] float64: the number of rows of this rank, the means, and Σ (x - mean)².
void batch_norm_pack_statistics(Cpu, double rows, const Tensor& mean, const Tensor& variance, const Tensor& message);
void batch_norm_pack_statistics(Cuda, double rows, const Tensor& mean, const Tensor& variance, const Tensor& message);
// Computes from messages [ranks, 1 + 2c]: total rows [1], and mean and variance over all ranks. Bit-identical on all
// ranks.
void batch_norm_combine_statistics(Cpu, const Tensor& messages, const Tensor& rows, const Tensor& mean,
                                   const Tensor& variance);
void batch_norm_combine_statistics(Cuda, const Tensor& messages, const Tensor& rows, const Tensor& mean,
                                   const Tensor& variance);
// Packs message [2c] float64: d_gamma and d_beta.
void batch_norm_pack_sums(Cpu, const Tensor& d_gamma, const Tensor& d_beta, const Tensor& message);
void batch_norm_pack_sums(Cuda, const Tensor& d_gamma, const Tensor& d_beta, const Tensor& message);
// sums [2c] of d_gamma's type = the messages [ranks, 2c], summed in rank order, times own_rows / rows.
void batch_norm_combine_sums(Cpu, const Tensor& messages, double own_rows, const Tensor& rows, const Tensor& sums);
void batch_norm_combine_sums(Cuda, const Tensor& messages, double own_rows, const Tensor& rows, const Tensor& sums);

namespace detail {

// Functors per channel or per element of a message. The CPU and GPU kernels share them.
struct PackStatistics {
  double rows;
  const double *mean, *variance;
  double* to;
  int64_t channels;
  GODWIT_INLINE void operator()(int64_t c) const {
    if (c == 0) to[0] = rows;
    to[1 + c] = rows > 0 ? mean[c] : 0;
    to[1 + channels + c] = rows > 0 ? rows * variance[c] : 0;
  }
};

struct CombineStatistics {
  const double* messages;
  int64_t ranks, channels;
  double *rows, *mean, *variance;
  GODWIT_INLINE void operator()(int64_t c) const {
    const int64_t width = 1 + 2 * channels;
    const double* end = messages + ranks * width;
    double total = 0, m = 0, v = 0;
    for (const double* rank = messages; rank < end; rank += width) total += rank[0];
    for (const double* rank = messages; rank < end; rank += width) m += rank[0] / total * rank[1 + c];
    for (const double* rank = messages; rank < end; rank += width) {
      const double apart = rank[1 + c] - m;
      v += (rank[1 + channels + c] + rank[0] * apart * apart) / total;
    }
    if (c == 0) rows[0] = total;
    mean[c] = m, variance[c] = v;
  }
};

template <class C>
struct PackSums {
  const C *d_gamma, *d_beta;
  double* to;
  int64_t channels;
  GODWIT_INLINE void operator()(int64_t c) const {
    to[c] = static_cast<double>(d_gamma[c]);
    to[channels + c] = static_cast<double>(d_beta[c]);
  }
};

template <class C>
struct CombineSums {
  const double* messages;
  int64_t ranks, width;
  double own_rows;
  const double* rows;
  C* to;
  GODWIT_INLINE void operator()(int64_t i) const {
    const double share = own_rows / rows[0];
    double sum = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) sum += share * messages[rank * width + i];
    to[i] = static_cast<C>(sum);
  }
};

}  // namespace detail
}  // namespace godwit
