// Adafactor's update of a bucket. The order of operations is the same on the CPU and on GPUs. Sums are in float64:
// - over a row, and over the row sums: value i is added to lane i mod 32; then the upper half of the lanes is added to
//   the lower half until one lane is left;
// - over a column: in order within chunks of column_chunk() rows, then over the chunks in order.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/tensor.h"

// Kernels of Adafactor.
namespace godwit::adafactor {

constexpr int64_t kLanes = 32;       // number of partial sums
constexpr int64_t kPiece = 4096;     // values of a piece of a parameter
constexpr double kLeastSize = 1e-3;  // minimum RMS(x) in a relative learning rate

// A parameter of a bucket.
struct Matrix {
  int64_t rows, columns;   // for a vector: 1 and its length; 0 if another rank owns the parameter
  int64_t chunk;           // column_chunk(rows)
  int64_t index, element;  // index of the parameter and of its first element in the bucket
  // Indices in the bucket: of the first row mean, of the first column mean (for a vector, the first value of v), of the
  // first column sum of a chunk, and of the first piece.
  int64_t row, column, partial, piece;
  bool vector, decays;  // decays: whether weight decay applies
};

// The parameters of a bucket.
struct Matrices {
  std::vector<Matrix> all;  // one for each slot
  Matrix end;               // the indices after the last parameter
  Tensor row, column;       // row means; column means and v
  Tensor table;             // `all` as bytes, on the bucket's device
};

// The arrays of a bucket and the constants of a step.
template <class T>
struct Args {
  T* x;                    // parameters
  const T* g;              // mean gradient
  T *row, *column;         // means of the bucket
  double beta2, eps;       // ε: added to g²
  double lr, clip_update;  // the learning rate is lr/max(1, RMS(u)/clip_update)
  bool relative;           // whether to multiply the rate by max(kLeastSize, RMS(x))
  T keep;                  // 1 − lr·λ, for parameters with weight decay
};

// Updates the means of all parameters, then x.
void update(Cuda device, const Matrices& matrices, const Args<float>& a);
void update(Cuda device, const Matrices& matrices, const Args<double>& a);

}  // namespace godwit::adafactor
