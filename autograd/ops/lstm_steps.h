// The loops of lstm over the steps of a sequence, and the formulas of a cell. Only lstm.cpp and lstm.cu include this
// header.
#pragma once
#include "autograd/ops/lstm.h"
#include "engine/vector_math.h"

namespace godwit::detail {

// 1 / (1 + e^-x)
template <class C>
GODWIT_INLINE inline C sigmoid_of(C x) {
  return 1 / (1 + exp_of(-x));
}

// The values of one cell in one step. C is the type of the computation.
template <class C>
struct LstmCell {
  C i, f, g, o;  // pre-activations, activations, or gradients of pre-activations

  // Replaces pre-activations by activations and c by the next cell state. Returns the next h.
  GODWIT_INLINE C forward(C& c) {
    i = sigmoid_of(i), f = sigmoid_of(f), g = tanh_of(g), o = sigmoid_of(o);
    c = f * c + i * g;
    return o * tanh_of(c);
  }

  // Replaces activations by gradients of pre-activations. `before` and `after` are the cell states before and after the
  // step. dh is the gradient of h. dc is the gradient of `after` on entry and the gradient of `before` on return.
  GODWIT_INLINE void backward(C before, C after, C dh, C& dc) {
    const C squashed = tanh_of(after), d_after = dc + dh * o * (1 - squashed * squashed);
    dc = d_after * f;
    const C di = d_after * g, df = d_after * before, dg = d_after * i, d_o = dh * squashed;
    i = di * i * (1 - i), f = df * f * (1 - f), g = dg * (1 - g * g), o = d_o * o * (1 - o);
  }
};

// Row `step` of a sequence as a matrix.
inline Tensor step_of(const Tensor& sequence, int64_t step) {
  return sequence.rows(step, 1).view({sequence.dim(1), sequence.dim(2)});
}

// multiply(h, y) computes y [batch, 4·width] = h · w_hhᵀ. cell(gates, recurrent, before, after, h) adds `recurrent` to
// the pre-activations and computes one step.
template <class Multiply, class Cell>
void lstm_forward_steps(const LstmSequence& s, const Multiply& multiply, const Cell& cell) {
  const Tensor recurrent({s.gates.dim(1), s.gates.dim(2)}, s.gates.dtype(), s.gates.device());
  for (int64_t step = 0; step < s.gates.dim(0); ++step) {
    multiply(step_of(s.hidden, step), recurrent);
    cell(step_of(s.gates, step), recurrent, step_of(s.cells, step), step_of(s.cells, step + 1),
         step_of(s.hidden, step + 1));
  }
}

// multiply(g, dh) computes dh [batch, width] = g · w_hh. cell(gates, before, after, dy, dh, dc) computes one step.
template <class Multiply, class Cell>
void lstm_backward_steps(const LstmSequence& s, const Tensor& dy, const Tensor& dh, const Tensor& dc, bool initial_h,
                         const Multiply& multiply, const Cell& cell) {
  for (int64_t step = s.gates.dim(0) - 1; step >= 0; --step) {
    const Tensor gates = step_of(s.gates, step);
    cell(gates, step_of(s.cells, step), step_of(s.cells, step + 1), step_of(dy, step), dh, dc);
    if (step > 0 || initial_h) multiply(gates, dh);
  }
}

}  // namespace godwit::detail
