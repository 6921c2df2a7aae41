#include <cmath>

#include "engine/cuda/update.h"
#include "optim/adafactor_kernels.h"

namespace godwit::adafactor {
namespace {

constexpr int kThreads = godwit::kBlock;

template <class T>
__device__ double squared(T value) {
  return static_cast<double>(value) * static_cast<double>(value);
}

// mean ← β2·mean + (1−β2)·value
template <class T>
__device__ void move(T& mean, double beta2, double value) {
  mean = static_cast<T>(beta2 * static_cast<double>(mean) + (1 - beta2) * value);
}

template <class T>
struct MoveAll {
  double beta2, eps;
  __device__ void operator()(int64_t, T& v, T& by, T g) const {
    move(v, beta2, squared(g) + eps);
    by = static_cast<T>(1 / std::sqrt(static_cast<double>(v)));
  }
};

template <class T>
__global__ void row_kernel(Args<T> a, T* row) {
  for (int64_t i = grid_thread(); i < a.rows; i += grid_threads()) {
    double sum = 0;
    for (int64_t j = 0; j < a.columns; ++j) sum += squared(a.g[i * a.columns + j]) + a.eps;
    move(row[i], a.beta2, sum / static_cast<double>(a.columns));
  }
}

template <class T>
__global__ void column_kernel(Args<T> a, T* column, T* by) {
  for (int64_t j = grid_thread(); j < a.columns; j += grid_threads()) {
    double sum = 0;
    for (int64_t i = 0; i < a.rows; ++i) sum += squared(a.g[i * a.columns + j]) + a.eps;
    move(column[j], a.beta2, sum / static_cast<double>(a.rows));
    by[j] = static_cast<T>(1 / std::sqrt(static_cast<double>(column[j])));
  }
}

// A thread a block of values.
template <class Term>
__global__ void sum_kernel(Term term, int64_t n, double* sums) {
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  for (int64_t b = grid_thread(); b < blocks; b += grid_threads()) {
    const int64_t end = (b + 1) * kBlock < n ? (b + 1) * kBlock : n;
    double sum = 0;
    for (int64_t i = b * kBlock; i < end; ++i) sum += term(i);
    sums[b] = sum;
  }
}

__device__ double total(const double* sums, int64_t n) {
  double sum = 0;
  for (int64_t b = 0; b * kBlock < n; ++b) sum += sums[b];
  return sum;
}

template <class Term>
Tensor sum_over(Cuda device, int64_t n, const Term& term) {
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  const Tensor sums({blocks}, DType::f64);
  launch(device, "adafactor", sum_kernel<Term>, blocks_for(device, blocks, 32), 32, term, n, sums.cuda_data<double>());
  return sums;
}

template <class T>
struct Value {
  const T* x;
  __device__ double operator()(int64_t i) const { return static_cast<double>(x[i]); }
};

template <class T>
struct Square {
  const T* x;
  __device__ double operator()(int64_t i) const { return squared(x[i]); }
};

// u = ĝ·by_row·by_column
template <class T>
struct Change {
  const T *g, *by_row, *by_column;
  int64_t columns;
  __device__ T value(int64_t i) const { return g[i] * by_row[i / columns] * by_column[i % columns]; }
  __device__ double operator()(int64_t i) const { return squared(value(i)); }
};

template <class T>
__global__ void by_row_kernel(const T* row, int64_t rows, const double* sums, T* by) {
  const double mean = total(sums, rows) / static_cast<double>(rows);
  for (int64_t i = grid_thread(); i < rows; i += grid_threads())
    by[i] = static_cast<T>(std::sqrt(mean / static_cast<double>(row[i])));
}

// What u is taken times.
template <class T>
__global__ void rate_kernel(Args<T> a, const double* changes, const double* sizes, T* rate) {
  const int64_t n = a.rows * a.columns;
  const double of_u = std::sqrt(total(changes, n) / static_cast<double>(n));
  double lr = a.lr;
  if (a.relative) {
    const double size = std::sqrt(total(sizes, n) / static_cast<double>(n));
    lr *= size > a.least_size ? size : a.least_size;
  }
  const double excess = of_u / a.clip_update;
  *rate = static_cast<T>(lr / (excess > 1 ? excess : 1.0));
}

template <class T>
struct Apply {
  Change<T> u;
  const T* rate;
  T keep;
  __device__ void operator()(int64_t i, T& x) const { x = keep * x - *rate * u.value(i); }
};

template <class T>
void apply(Cuda device, const Args<T>& a, const Tensor& by_row, const Tensor& by_column) {
  const int64_t n = a.rows * a.columns;
  const Change<T> u{a.g, by_row.cuda_data<T>(), by_column.cuda_data<T>(), a.columns};
  const Tensor changes = sum_over(device, n, u), rate({1}, dtype_of<T>);
  const Tensor sizes = a.relative ? sum_over(device, n, Square<T>{a.x}) : changes;
  launch(device, "adafactor", rate_kernel<T>, 1, 1, a, changes.cuda_data<double>(), sizes.cuda_data<double>(),
         rate.cuda_data<T>());
  update_each(device, "adafactor", 0, n, Apply<T>{u, rate.cuda_data<T>(), a.keep}, a.x);
}

template <class T>
void of_vector(Cuda device, const Args<T>& a, T* v) {
  const Tensor by_row = Tensor::full({1}, 1, dtype_of<T>), by({a.columns}, dtype_of<T>);
  update_each(device, "adafactor", 0, a.columns, MoveAll<T>{a.beta2, a.eps}, v, by.cuda_data<T>(), a.g);
  apply(device, a, by_row, by);
}

template <class T>
void of_matrix(Cuda device, const Args<T>& a, T* row, T* column) {
  const Tensor by_row({a.rows}, dtype_of<T>), by_column({a.columns}, dtype_of<T>);
  launch(device, "adafactor", row_kernel<T>, blocks_for(device, a.rows, 32), 32, a, row);
  launch(device, "adafactor", column_kernel<T>, blocks_for(device, a.columns, 32), 32, a, column,
         by_column.cuda_data<T>());
  const Tensor sums = sum_over(device, a.rows, Value<T>{row});
  launch(device, "adafactor", by_row_kernel<T>, blocks_for(device, a.rows), kThreads, row, a.rows,
         sums.cuda_data<double>(), by_row.cuda_data<T>());
  apply(device, a, by_row, by_column);
}

}  // namespace

void update(Cuda device, const Args<float>& a, float* v) { of_vector(device, a, v); }
void update(Cuda device, const Args<double>& a, double* v) { of_vector(device, a, v); }
void update(Cuda device, const Args<float>& a, float* row, float* column) { of_matrix(device, a, row, column); }
void update(Cuda device, const Args<double>& a, double* row, double* column) { of_matrix(device, a, row, column); }

}  // namespace godwit::adafactor
