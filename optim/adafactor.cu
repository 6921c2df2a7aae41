#include <cmath>

#include "engine/cuda/cooperative.h"
#include "engine/cuda/reduce.h"
#include "engine/cuda/update.h"
#include "optim/kernels/adafactor_kernels.h"
#include "optim/kernels/cuda/range_pieces.h"

namespace godwit::adafactor {
namespace {

// Argument of the kernel. u = ĝ·by_row·by_column.
template <class T>
struct Step {
  Args<T> a;
  const Matrix* matrices;
  Matrix end;                                // Matrices::end
  double *partial, *mean, *changes, *sizes;  // column sums of chunks; mean(r); row sums of u² and of x²
  T *by_row, *by_column, *rate;
  bf16* rounded;  // detail::rounded_target()
};

// The matrix of item i. `first` selects rows, columns, ….
template <class T>
__device__ const Matrix& matrix_of(const Step<T>& s, int64_t Matrix::*first, int64_t i) {
  int64_t low = 0, high = s.end.index;  // finds the last matrix that begins at or before i
  while (high - low > 1) (s.matrices[(low + high) / 2].*first <= i ? low : high) = (low + high) / 2;
  return s.matrices[low];
}

// Calls f(m, i) for each item i of each matrix m. `threads` adjacent threads call f.
template <int threads, class T, class F>
__device__ void for_each(const Step<T>& s, int64_t Matrix::*first, const F& f) {
  for (uint32_t i = grid_thread32() / threads; i < s.end.*first; i += grid_threads32() / threads) {
    const Matrix m = matrix_of(s, first, i);
    f(m, static_cast<uint32_t>(i - m.*first));
  }
}

template <class T>
__device__ double squared(T value) {
  return static_cast<double>(value) * static_cast<double>(value);
}

// Σ term(i) for i in [0, n), returned to all threads of a warp. All of them must call it.
template <class Term>
__device__ double lane_sum(int64_t n, const Term& term) {
  static_assert(kLanes == 32);
  double sum = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x % kLanes; i < n; i += kLanes) sum += term(i);
  for (int half = kLanes / 2; half > 0; half /= 2) sum = sum + __shfl_xor_sync(0xFFFFFFFFu, sum, half);
  return sum;
}

__device__ bool first_lane() { return threadIdx.x % kLanes == 0; }

// mean ← β2·mean + (1−β2)·sum/count
template <class T>
__device__ void move(const Args<T>& a, T& mean, double sum, int64_t count) {
  const double value = sum / static_cast<double>(count);
  mean = static_cast<T>(a.beta2 * static_cast<double>(mean) + (1 - a.beta2) * value);
}

// Row means, and column sums of chunks.
template <class T>
__device__ void add_squares(const Step<T>& s) {
  for_each<kLanes>(s, &Matrix::row, [&](const Matrix& m, uint32_t i) {
    if (m.vector) return;
    const T* g = s.a.g + m.element + i * m.columns;
    const double sum = lane_sum(m.columns, [&](int64_t j) { return squared(g[j]) + s.a.eps; });
    if (first_lane()) move(s.a, s.a.row[m.row + i], sum, m.columns);
  });
  for_each<1>(s, &Matrix::partial, [&](const Matrix& m, uint32_t i) {
    const auto columns = static_cast<uint32_t>(m.columns);
    const int64_t first = i / columns * m.chunk, end = first + m.chunk < m.rows ? first + m.chunk : m.rows;
    const T* g = s.a.g + m.element + i % columns;
    double sum = 0;
#pragma unroll 8
    for (int64_t row = first; row < end; ++row) sum += squared(g[row * m.columns]) + s.a.eps;
    s.partial[m.partial + i] = sum;
  });
}

// Means of the row means; column means and by_column.
template <class T>
__device__ void move_means(const Step<T>& s) {
  for_each<kLanes>(s, &Matrix::index, [&](const Matrix& m, uint32_t) {
    const double sum = lane_sum(m.rows, [&](int64_t i) { return static_cast<double>(s.a.row[m.row + i]); });
    if (first_lane()) s.mean[m.index] = sum / static_cast<double>(m.rows);
  });
  for_each<1>(s, &Matrix::column, [&](const Matrix& m, uint32_t j) {
    const auto chunks = static_cast<uint32_t>(m.rows + m.chunk - 1) / static_cast<uint32_t>(m.chunk);
    T& mean = s.a.column[m.column + j];
    move(s.a, mean, detail::ordered_sum<16>(s.partial + m.partial + j, chunks, m.columns), m.rows);
    s.by_column[m.column + j] = static_cast<T>(1 / std::sqrt(static_cast<double>(mean)));
  });
}

// by_row, and row sums of u² and of x².
template <class T>
__device__ void add_changes(const Step<T>& s) {
  for_each<kLanes>(s, &Matrix::row, [&](const Matrix& m, uint32_t i) {
    const int64_t row = m.row + i, first = m.element + i * m.columns;
    const T *x = s.a.x + first, *g = s.a.g + first, *by_column = s.by_column + m.column;
    const T by_row = m.vector ? 1 : static_cast<T>(std::sqrt(s.mean[m.index] / static_cast<double>(s.a.row[row])));
    const double change = lane_sum(m.columns, [&](int64_t j) { return squared(g[j] * by_row * by_column[j]); });
    const double size = s.a.relative ? lane_sum(m.columns, [&](int64_t j) { return squared(x[j]); }) : 0;
    if (first_lane()) s.by_row[row] = by_row, s.changes[row] = change, s.sizes[row] = size;
  });
}

// Learning rates.
template <class T>
__device__ void find_rates(const Step<T>& s) {
  for_each<kLanes>(s, &Matrix::index, [&](const Matrix& m, uint32_t) {
    const auto root_mean_square = [&](const double* squares) {
      const double sum = lane_sum(m.rows, [&](int64_t i) { return squares[m.row + i]; });
      return std::sqrt(sum / static_cast<double>(m.rows * m.columns));
    };
    const double excess = root_mean_square(s.changes) / s.a.clip_update;
    double lr = s.a.lr;
    if (s.a.relative) {
      const double size = root_mean_square(s.sizes);
      lr *= size > kLeastSize ? size : kLeastSize;
    }
    if (first_lane()) s.rate[m.index] = static_cast<T>(lr / (excess > 1 ? excess : 1.0));
  });
}

// x ← keep·x − rate·u
template <class T>
struct Apply {
  int64_t element;
  uint32_t columns;
  T keep, rate;
  const T *by_row, *by_column;
  __device__ void operator()(int64_t i, T& x, const T& g) const {
    const auto at = static_cast<uint32_t>(i - element);
    x = keep * x - rate * (g * by_row[at / columns] * by_column[at % columns]);
  }
};

// Updates x. A block of threads processes one piece at a time. `first`: the first element of a pack.
template <class T>
__device__ void apply_changes(const Step<T>& s, int64_t first) {
  for (int64_t p = blockIdx.x; p < s.end.piece; p += gridDim.x) {
    const Matrix m = matrix_of(s, &Matrix::piece, p);
    const int64_t begin = m.element + (p - m.piece) * kPiece, end = m.element + m.rows * m.columns;
    const Apply<T> apply{m.element, static_cast<uint32_t>(m.columns), m.decays ? s.a.keep : T{1}, s.rate[m.index],
                         s.by_row + m.row, s.by_column + m.column};
    for_packs<kPack<T>>({m.index, begin, begin + kPiece < end ? begin + kPiece : end, m.decays}, first,
                        [&]<int n>(int64_t i) { detail::update_pack<n>(apply, i, s.rounded, s.a.x, s.a.g); });
  }
}

template <class T>
__global__ void __launch_bounds__(kBlock, kResidentBlocks)
    adafactor_kernel(const __grid_constant__ Step<T> s, int64_t first) {
  add_squares(s);
  grid_barrier();
  move_means(s);
  grid_barrier();
  add_changes(s);
  grid_barrier();
  find_rates(s);
  grid_barrier();
  apply_changes(s, first);
}

template <class T>
void update_bucket(Cuda device, const Matrices& matrices, const Args<T>& a) {
  const Matrix& end = matrices.end;
  if (end.partial == 0) return;
  const int64_t most = std::max({end.row, end.column, end.partial});
  check(most < int64_t{1} << 31, "adafactor: a bucket needs ", most, " sums, but at most 2^31 - 1 fit on a GPU; use ",
        "smaller buckets");
  for (const Matrix& m : matrices.all) {
    const int64_t n = m.rows * m.columns;
    check(n < int64_t{1} << 32, "adafactor: a parameter has ", n, " elements, but at most 2^32 - 1 fit on a GPU");
  }
  const int64_t begin = matrices.all.front().element;
  const Tensor sums({end.partial + end.index + 2 * end.row}, DType::f64);
  const Tensor factors({end.row + end.column + end.index}, dtype_of<T>);
  double* const mean = sums.cuda_data<double>() + end.partial;
  T* const by_column = factors.cuda_data<T>() + end.row;
  const Step<T> s{.a = a,
                  .matrices = reinterpret_cast<const Matrix*>(matrices.table.cuda_data<uint8_t>()),
                  .end = end,
                  .partial = sums.cuda_data<double>(),
                  .mean = mean,
                  .changes = mean + end.index,
                  .sizes = mean + end.index + end.row,
                  .by_row = factors.cuda_data<T>(),
                  .by_column = by_column,
                  .rate = by_column + end.column,
                  .rounded = detail::rounded_target(begin, end.element, a.x)};
  launch_cooperative(device, "adafactor", adafactor_kernel<T>,
                     std::max({end.piece, end.row * kLanes / kBlock + 1, end.partial / kBlock + 1}), s,
                     packed_range<kPack<T>>(begin, end.element, a.x, a.g).first);
}

}  // namespace

void update(Cuda device, const Matrices& matrices, const Args<float>& a) { update_bucket(device, matrices, a); }
void update(Cuda device, const Matrices& matrices, const Args<double>& a) { update_bucket(device, matrices, a); }

}  // namespace godwit::adafactor
