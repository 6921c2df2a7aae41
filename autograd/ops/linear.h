// linear: y [n, out] = x [n, in] · w [out, in]ᵀ + bias [out]. joined_linear: several weights in one operation.
#pragma once
#include <vector>

#include "autograd/var.h"

namespace godwit {

// w is one weight, or several weights [out_i, in] whose results are adjacent columns of y [n, Σ out_i] in this order.
// x, y and their gradients are float32, bfloat16 or float64. w, bias and their gradients have the type of x, or float32
// for bfloat16 x; with fast_bf16(), w is then rounded to bfloat16. bias and db have one entry for each weight. Empty
// lists and undefined tensors are ignored. On a GPU, y and dy may have more columns than the weights have rows, and dx
// may be float32 for bfloat16 dy.
void linear_forward(Cpu, const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                    const Tensor& y);
void linear_forward(Cuda, const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                    const Tensor& y);
// dx = Σ dy_i · w_i, or dx + Σ dy_i · w_i if `add`. The sum over the weights is rounded once.
void linear_backward_data(Cpu, const Tensor& dy, const std::vector<Tensor>& w, const Tensor& dx, bool add = false);
void linear_backward_data(Cuda, const Tensor& dy, const std::vector<Tensor>& w, const Tensor& dx, bool add = false);
// dw_i = dy_iᵀ · x; db_i = column sums of dy_i.
void linear_backward_weights(Cpu, const Tensor& x, const Tensor& dy, const std::vector<Tensor>& dw,
                             const std::vector<Tensor>& db);
void linear_backward_weights(Cuda, const Tensor& x, const Tensor& dy, const std::vector<Tensor>& dw,
                             const std::vector<Tensor>& db);

// The parameters of a linear layer.
struct LinearParameters {
  Var weight, bias = {};  // [out, in] and [out]; undefined: no bias
};

namespace ops {

// x · wᵀ + bias. An undefined bias means no bias. Throws for other shapes or types.
Var linear(const Var& x, const Var& w, const Var& bias = Var());

// The results of several linear layers with one input, as adjacent columns in the order of the layers: [n, Σ out_i]. On
// a GPU, each pass is one matrix product if the layers' parameters have a constant positive stride in memory. Throws
// for other shapes or types and for a weight or bias that occurs twice. Also throws if only some layers have a bias, or
// if only some weights or biases require a gradient.
Var joined_linear(const Var& x, const std::vector<LinearParameters>& layers);

}  // namespace ops
}  // namespace godwit
