// Adafactor's passes over a parameter on a GPU, in the CPU's order of operations. Sums are in float64:
// - over a row, and over the row sums: value i is added to lane i mod 32, then the upper half of the lanes is added to
//   the lower half until one lane is left;
// - over a column: in order within chunks of column_chunk() rows, then over the chunks in order.
#pragma once
#include <cstdint>

#include "engine/tensor.h"

// Kernels of Adafactor.
namespace godwit::adafactor {

constexpr int64_t kLanes = 32;  // partial sums

// A parameter, its gradient and the constants of a step.
template <class T>
struct Args {
  T* x;                    // parameters
  const T* g;              // mean gradient
  int64_t rows, columns;   // rows 1: a vector
  double beta2, eps;       // ε: added to g²
  double lr, clip_update;  // the rate is lr/max(1, RMS(u)/clip_update)
  bool relative;           // multiplies the rate by max(least_size, RMS(x))
  double least_size;       // see `relative`
  T keep;                  // 1 − lr·λ
};

// Vector: v ← β2·v + (1−β2)(g²+ε), then updates x. v has as many values as x.
void update(Cuda device, const Args<float>& a, float* v);
void update(Cuda device, const Args<double>& a, double* v);
// Matrix: updates the row means `row` [rows] and column means `column` [columns], then x.
void update(Cuda device, const Args<float>& a, float* row, float* column);
void update(Cuda device, const Args<double>& a, double* row, double* column);

}  // namespace godwit::adafactor
