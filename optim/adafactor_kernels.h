// Adafactor's passes over a parameter on a GPU, in the CPU's order of operations: sums in float64 over a row, over a
// column, and over blocks of 4096 values, each from its first value on.
#pragma once
#include <cstdint>

#include "engine/tensor.h"

namespace godwit::adafactor {

constexpr int64_t kBlock = 4096;  // values that are added by themselves

template <class T>
struct Args {
  T* x;
  const T* g;
  int64_t rows, columns;  // rows 1: of a vector
  double beta2, eps;
  double lr, clip_update;  // lr·max(least_size, RMS(x)) where `relative`, over max(1, RMS(u)/clip_update)
  bool relative;
  double least_size;
  T keep;  // 1 − lr·λ
};

// v ← β2·v + (1−β2)(g²+ε) of a vector; then x by it. `v` has as many values as x.
void update(Cuda device, const Args<float>& a, float* v);
void update(Cuda device, const Args<double>& a, double* v);
// The same of a matrix, with one mean a row and one a column.
void update(Cuda device, const Args<float>& a, float* row, float* column);
void update(Cuda device, const Args<double>& a, double* row, double* column);

}  // namespace godwit::adafactor
