// Adafactor's update of a bucket, in the same order of operations on the CPU and on GPUs. Sums are in float64:
// - over a row, and over the row sums: value i is added to lane i mod 32, then the upper half of the lanes is added to
//   the lower half until one lane is left;
// - over a column: in order within chunks of column_chunk() rows, then over the chunks in order.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/tensor.h"

// Kernels of Adafactor.
namespace godwit::adafactor {

constexpr int64_t kLanes = 32;       // partial sums
constexpr double kLeastSize = 1e-3;  // minimum RMS(x) in a relative learning rate

// A parameter of a bucket, and its first index in the bucket's arrays.
struct Matrix {
  int64_t rows, columns;         // of a vector: 1 and its length; 0 if another rank owns the parameter
  int64_t chunk;                 // column_chunk(rows)
  int64_t index, element;        // of all parameters; of the bucket
  int64_t row, column, partial;  // of row means; of column means, and v of vectors; of the column sums of chunks
  bool vector, decays;           // decays: by weight decay
};

// The parameters of a bucket.
struct Matrices {
  std::vector<Matrix> all;  // one for each slot
  Matrix end;               // the indices after the last ones
  Tensor row, column;       // means, see Matrix
  Tensor table;             // the bytes of `all`, on the bucket's device
};

// The arrays of a bucket and the constants of a step.
template <class T>
struct Args {
  T* x;                    // parameters
  const T* g;              // mean gradient
  T *row, *column;         // means of the bucket
  double beta2, eps;       // ε: added to g²
  double lr, clip_update;  // the rate is lr/max(1, RMS(u)/clip_update)
  bool relative;           // multiplies the rate by max(kLeastSize, RMS(x))
  T keep;                  // 1 − lr·λ, for parameters that decay
};

// Updates the means of all parameters, then x, in five launches.
void update(Cuda device, const Matrices& matrices, const Args<float>& a);
void update(Cuda device, const Matrices& matrices, const Args<double>& a);

}  // namespace godwit::adafactor
