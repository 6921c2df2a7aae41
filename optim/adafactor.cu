#include <cmath>

#include "engine/cuda/reduce.h"
#include "engine/cuda/update.h"
#include "optim/kernels/adafactor_kernels.h"

namespace godwit::adafactor {
namespace {

template <class T>
__device__ double squared(T value) {
  return static_cast<double>(value) * static_cast<double>(value);
}

// Σ term(i) for i in [0, n), returned to all threads of a warp. All of them must call it.
template <class Term>
__device__ double lane_sum(int64_t n, const Term& term) {
  static_assert(kLanes == 32);
  double sum = 0;
  for (int64_t i = threadIdx.x % kLanes; i < n; i += kLanes) sum += term(i);
  for (int half = kLanes / 2; half > 0; half /= 2) sum = sum + __shfl_xor_sync(0xFFFFFFFFu, sum, half);
  return sum;
}

// One warp per row.
template <class Term>
__global__ void row_sums_kernel(Term term, int64_t rows, int64_t columns, double* sums) {
  for (int64_t i = grid_thread() / kLanes; i < rows; i += grid_threads() / kLanes) {
    const double sum = lane_sum(columns, [&](int64_t j) { return static_cast<double>(term(i, j)); });
    if (threadIdx.x % kLanes == 0) sums[i] = sum;
  }
}

template <class Term>
Tensor row_sums(Cuda device, int64_t rows, int64_t columns, const Term& term) {
  const Tensor sums({rows}, DType::f64);
  launch(device, "adafactor", row_sums_kernel<Term>, blocks_for(device, rows * kLanes), kBlock, term, rows, columns,
         sums.cuda_data<double>());
  return sums;
}

// g² + ε.
template <class T>
struct Square {
  const T* g;
  int64_t columns;
  double eps;
  __device__ double operator()(int64_t i, int64_t j) const { return squared(g[i * columns + j]) + eps; }

  static constexpr int kSums = 1;
  template <int n>
  __device__ void operator()(int64_t i, int64_t j, double (&sums)[1][n]) const {
    const auto values = detail::load_pack<n>(g + i * columns + j, 0);
    for (int k = 0; k < n; ++k) sums[0][k] += squared(values.values[k]) + eps;
  }
};

template <class T>
struct SquareOfSize {
  const T* x;
  int64_t columns;
  __device__ double operator()(int64_t i, int64_t j) const { return squared(x[i * columns + j]); }
};

// u = ĝ·by_row·by_column
template <class T>
struct Change {
  const T *g, *by_row, *by_column;
  int64_t columns;
  __device__ T value(int64_t i, int64_t j) const { return g[i * columns + j] * by_row[i] * by_column[j]; }
  __device__ double operator()(int64_t i, int64_t j) const { return squared(value(i, j)); }
};

// mean ← β2·mean + (1−β2)·sum/count
template <class T>
struct Move {
  double beta2, count;
  __device__ void operator()(int64_t, T& mean, const double& sum) const {
    mean = static_cast<T>(beta2 * static_cast<double>(mean) + (1 - beta2) * (sum / count));
  }
};

template <class T>
struct Inverse {
  __device__ void operator()(int64_t, T& by, const T& mean) const {
    by = static_cast<T>(1 / std::sqrt(static_cast<double>(mean)));
  }
};

// Mean of row[rows]. Runs on one warp.
template <class T>
__global__ void mean_kernel(const T* row, int64_t rows, double* mean) {
  const double sum = lane_sum(rows, [=](int64_t i) { return static_cast<double>(row[i]); });
  if (threadIdx.x == 0) *mean = sum / static_cast<double>(rows);
}

template <class T>
struct ByRow {
  const double* mean;
  __device__ void operator()(int64_t, T& by, const T& row) const {
    by = static_cast<T>(std::sqrt(*mean / static_cast<double>(row)));
  }
};

// The factor of u in the update. Runs on one warp.
template <class T>
__global__ void rate_kernel(Args<T> a, const double* changes, const double* sizes, T* rate) {
  const double n = static_cast<double>(a.rows * a.columns);
  const double of_u = std::sqrt(lane_sum(a.rows, [=](int64_t i) { return changes[i]; }) / n);
  double lr = a.lr;
  if (a.relative) {
    const double size = std::sqrt(lane_sum(a.rows, [=](int64_t i) { return sizes[i]; }) / n);
    lr *= size > a.least_size ? size : a.least_size;
  }
  const double excess = of_u / a.clip_update;
  if (threadIdx.x == 0) *rate = static_cast<T>(lr / (excess > 1 ? excess : 1.0));
}

// x ← keep·x − rate·u
template <class T>
struct Apply {
  Change<T> u;
  const T *rate, *x;
  T keep;
  template <int n>
  __device__ void operator()(uint32_t i, uint32_t j, T (&values)[n]) const {
    const int64_t at = i * u.columns + j;
    const auto before = detail::load_pack<n>(x + at, 0), g = detail::load_pack<n>(u.g + at, 0);
    const auto by_column = load_any<n>(u.by_column + j);
    for (int k = 0; k < n; ++k)
      values[k] = keep * before.values[k] - *rate * (g.values[k] * u.by_row[i] * by_column.values[k]);
  }
};

template <class T>
void apply(Cuda device, const Args<T>& a, const Tensor& by_row, const T* column) {
  const Tensor by_column({a.columns}, dtype_of<T>), rate({1}, dtype_of<T>);
  update_each(device, "adafactor", 0, a.columns, Inverse<T>{}, by_column.cuda_data<T>(), column);
  const Change<T> u{a.g, by_row.cuda_data<T>(), by_column.cuda_data<T>(), a.columns};
  const Tensor changes = row_sums(device, a.rows, a.columns, u);
  const Tensor sizes = a.relative ? row_sums(device, a.rows, a.columns, SquareOfSize<T>{a.x, a.columns}) : changes;
  launch(device, "adafactor", rate_kernel<T>, 1, kLanes, a, changes.cuda_data<double>(), sizes.cuda_data<double>(),
         rate.cuda_data<T>());
  generate_rows(device, "adafactor", a.rows, a.columns, a.columns, Apply<T>{u, rate.cuda_data<T>(), a.x, a.keep}, a.x,
                a.g);
}

template <class T>
void move_columns(Cuda device, const Args<T>& a, T* column) {
  const Tensor sums({a.columns}, DType::f64);
  column_sums<T, Square<T>, double>(device, "adafactor", a.rows, a.columns, {a.g, a.columns, a.eps},
                                    {sums.cuda_data<double>()}, {a.g});
  const Move<T> move{a.beta2, static_cast<double>(a.rows)};
  update_each(device, "adafactor", 0, a.columns, move, column, static_cast<const double*>(sums.cuda_data<double>()));
}

template <class T>
void of_vector(Cuda device, const Args<T>& a, T* v) {
  move_columns(device, a, v);
  apply(device, a, Tensor::full({1}, 1, dtype_of<T>), v);
}

template <class T>
void of_matrix(Cuda device, const Args<T>& a, T* row, T* column) {
  const Tensor sums = row_sums(device, a.rows, a.columns, Square<T>{a.g, a.columns, a.eps});
  const Move<T> move{a.beta2, static_cast<double>(a.columns)};
  update_each(device, "adafactor", 0, a.rows, move, row, static_cast<const double*>(sums.cuda_data<double>()));
  move_columns(device, a, column);
  const Tensor mean({1}, DType::f64), by_row({a.rows}, dtype_of<T>);
  launch(device, "adafactor", mean_kernel<T>, 1, kLanes, static_cast<const T*>(row), a.rows, mean.cuda_data<double>());
  update_each(device, "adafactor", 0, a.rows, ByRow<T>{mean.cuda_data<double>()}, by_row.cuda_data<T>(),
              static_cast<const T*>(row));
  apply(device, a, by_row, static_cast<const T*>(column));
}

}  // namespace

void update(Cuda device, const Args<float>& a, float* v) { of_vector(device, a, v); }
void update(Cuda device, const Args<double>& a, double* v) { of_vector(device, a, v); }
void update(Cuda device, const Args<float>& a, float* row, float* column) { of_matrix(device, a, row, column); }
void update(Cuda device, const Args<double>& a, double* row, double* column) { of_matrix(device, a, row, column); }

}  // namespace godwit::adafactor
