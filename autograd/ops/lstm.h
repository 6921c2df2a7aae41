// lstm: one LSTM layer (Hochreiter and Schmidhuber 1997, Gers et al. 2000) over a sequence, as in torch.nn.LSTM:
//   i, f, g, o = σ, σ, tanh, σ of the four parts of x_t · w_ihᵀ + b_ih + h_{t-1} · w_hhᵀ + b_hh
//   c_t = f ⊙ c_{t-1} + i ⊙ g,  h_t = o ⊙ tanh(c_t)
#pragma once
#include "autograd/var.h"

namespace godwit {

// Memory of one pass over a sequence. `gates` and `hidden` have the type of x: float32, bfloat16 or float64. `cells`
// has the type of the parameters: the type of x, or float32 for bfloat16 x.
struct LstmSequence {
  Tensor gates;   // [time, batch, 4·width]: pre-activations, activations i, f, g, o, or gradients of pre-activations
  Tensor hidden;  // [time + 1, batch, width]: h_0 (the initial state), h_1, …
  Tensor cells;   // [time + 1, batch, width]: c_0 (the initial state), c_1, …
};

// Runs all steps. On entry, `gates` holds the input's part of the pre-activations, including both biases. Row 0 of
// `hidden` and `cells` holds the initial state. On return, `gates` holds the activations.
void lstm_forward(Cpu, const Tensor& w_hh, const LstmSequence& sequence);
void lstm_forward(Cuda, const Tensor& w_hh, const LstmSequence& sequence);
// Runs all steps backward from dy [time, batch, width]. Replaces the activations in `gates` by the gradients of the
// pre-activations. dh and dc [batch, width] hold the gradients of the final state on entry, and the gradients of the
// initial state on return. The gradient of the initial h is computed only if `initial_h`.
void lstm_backward(Cpu, const Tensor& w_hh, const LstmSequence& sequence, const Tensor& dy, const Tensor& dh,
                   const Tensor& dc, bool initial_h);
void lstm_backward(Cuda, const Tensor& w_hh, const LstmSequence& sequence, const Tensor& dy, const Tensor& dh,
                   const Tensor& dc, bool initial_h);

namespace ops {

// The state of a layer between two steps. c is float32 if h is bfloat16.
struct LstmState {
  Var h, c;  // [batch, width]; undefined: zeros
};

// Parameters of a layer, in PyTorch's shapes. The rows are grouped by gate, i, f, g, o, with `width` rows each.
struct LstmWeights {
  Var w_ih, w_hh;  // [4·width, input], [4·width, width]
  Var b_ih, b_hh;  // [4·width], or both undefined
};

// The result of lstm().
struct LstmResult {
  Var y;            // [time, batch, width]: h of every step
  LstmState state;  // state after the last step; gradients flow through the state and through y
};

// One layer over x [time, batch, input]. Throws for other shapes or types. For truncated back-propagation through time,
// in which gradients end at the initial state, pass a state of leaves.
LstmResult lstm(const Var& x, const LstmState& initial, const LstmWeights& weights);

}  // namespace ops
}  // namespace godwit
