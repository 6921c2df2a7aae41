// Rotary positions (Su et al. 2021): rotates pairs of columns of each head by angles that grow with the position. A
// pair has one column of the first half of a head and the corresponding column of the second half, as in HuggingFace's
// LLaMA.
#pragma once
#include "autograd/var.h"

namespace godwit {

// Factors of the rotations for positions 0 to positions - 1: [positions, head_dim / 2], of type compute_t.
struct RotaryTable {
  Tensor cos, sin;  // cosines and sines of the angles, times a magnitude
};

// x and y are [rows, heads · head_dim]. Row r has position first + r % length. For a pair of columns (a, b), y = (a cos
// - b sin, b cos + a sin). `inverse` applies the transposed map. y may be x.
void rotate(Cpu, const Tensor& x, const RotaryTable& table, int64_t length, int64_t first, bool inverse,
            const Tensor& y);
void rotate(Cuda, const Tensor& x, const RotaryTable& table, int64_t length, int64_t first, bool inverse,
            const Tensor& y);

namespace ops {

// Rotates x [batch · length, heads · head_dim]. Each text has `length` rows and begins at position `first`. Backward
// needs neither x nor the result. Throws for other shapes or types, and if the table has fewer than first + length
// positions.
Var rotary(const Var& x, const RotaryTable& table, int64_t length, int64_t first = 0);

}  // namespace ops
}  // namespace godwit
