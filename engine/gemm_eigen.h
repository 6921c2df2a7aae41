// Matrix products with Eigen. Only gemm*.cpp files include this header.
#pragma once
#include <cstdint>

// Eigen would split the work by thread count, and the sums would depend on that count. parallel_for uses fixed tiles
// instead.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>
#include <algorithm>

#include "engine/parallel.h"
#include "engine/subnormals.h"

namespace godwit::detail {

template <class T>
void gemm_tile(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda,
               const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using In = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;
  const In left(a, trans_a ? k : m, trans_a ? m : k, Eigen::OuterStride<>(lda));
  const In right(b, trans_b ? n : k, trans_b ? k : n, Eigen::OuterStride<>(ldb));
  Eigen::Map<Matrix, 0, Eigen::OuterStride<>> result(c, m, n, Eigen::OuterStride<>(ldc));
  if (beta == T{0}) result.setZero();
  else if (beta != T{1}) result *= beta;
  if (k == 0) return;
  if (trans_a && trans_b) result.noalias() += alpha * (left.transpose() * right.transpose());
  else if (trans_a) result.noalias() += alpha * (left.transpose() * right);
  else if (trans_b) result.noalias() += alpha * (left * right.transpose());
  else result.noalias() += alpha * (left * right);
}

template <class T>
void gemm_eigen(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda,
                const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  constexpr int64_t kRows = 240, kColumns = 480;
  const int64_t across = (n + kColumns - 1) / kColumns, tiles = (m + kRows - 1) / kRows * across;
  const int64_t grain = std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(1, kRows * std::min(n, kColumns) * k));
  parallel_for(tiles, grain, [&](int64_t begin, int64_t end) {
    const FlushSubnormals flush;
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = tile / across * kRows, column = tile % across * kColumns;
      gemm_tile(trans_a, trans_b, std::min(kRows, m - row), std::min(kColumns, n - column), k, alpha,
                a + (trans_a ? row : row * lda), lda, b + (trans_b ? column * ldb : column), ldb, beta,
                c + row * ldc + column, ldc);
    }
  });
}

}  // namespace godwit::detail
