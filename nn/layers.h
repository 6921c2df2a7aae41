// Layers with parameters. Names and shapes are those of PyTorch, with channels last. `dtype` is the type of x.
// Parameters and buffers have type `dtype`, or float32 if `dtype` is bfloat16.
#pragma once
#include <functional>
#include <optional>
#include <utility>

#include "autograd/ops/convolution/conv2d.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/normalization/batch_norm.h"
#include "autograd/ops/normalization/layer_norm.h"
#include "autograd/ops/normalization/rms_norm.h"
#include "nn/module.h"

namespace godwit::nn {

// x [n, h, w, in] -> [n, h', w', out]. Parameters: weight [out, kernel, kernel, in / groups], initially zero, and
// optionally bias [out] (no weight decay).
class Conv2d : public Module {
 public:
  // in, out: number of channels. kernel: height and width of the filters. Throws unless all are positive and groups
  // divide the channels.
  Conv2d(int64_t in, int64_t out, int64_t kernel, Conv2dOptions options = {}, DType dtype = DType::f32,
         bool bias = false);
  Var operator()(const Var& x) const;  // ops::conv2d

 private:
  Conv2dOptions options_;
  Var weight_, bias_;
};

// Normalizes x [n, h, w, channels] per channel: by batch statistics in training mode, otherwise by running statistics.
// Parameters: weight (gamma) and bias (beta), both [channels], without weight decay. Buffers: running_mean and
// running_var. PyTorch's num_batches_tracked is omitted, because PyTorch's loaders do not require it.
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(int64_t channels, DType dtype = DType::f32, double gamma = 1);  // gamma: initial weight
  Var operator()(const Var& x, bool relu = false) const;  // relu: max(y, 0) in the same pass
  Var add_relu(const Var& x, const Var& residual) const;  // max(y + residual, 0) in the same pass
  // After this call, statistics cover all ranks. `gather`: see BatchNormOptions. See nn/replicas.h.
  void synchronize(std::function<Tensor(const Tensor&)> gather) { gather_ = std::move(gather); }

 private:
  BatchNormOptions options(bool relu) const;

  Var weight_, bias_;
  Tensor running_mean_, running_var_;
  std::function<Tensor(const Tensor&)> gather_;
};

// x [n, in] -> x·weightᵀ + bias, [n, out]. Parameters: weight [out, in] and optionally bias [out] (no weight decay),
// initially zero.
class Linear : public Module {
 public:
  // layout: layout of weight in files. Throws unless in and out are positive.
  Linear(int64_t in, int64_t out, DType dtype = DType::f32, bool bias = true,
         FileLayout layout = FileLayout::as_in_memory);
  Var operator()(const Var& x) const;                                    // ops::linear
  const Var& weight() const { return parameters_.weight; }               // [out, in]
  const LinearParameters& as_parameters() const { return parameters_; }  // for ops::joined_linear

 private:
  LinearParameters parameters_;
};

// Gathers rows of a table: ids int32 [n] -> [n, width], with the type of the parameter weight [rows, width], which is
// initially zero. Row `padding` gets no gradient from this layer.
class Embedding : public Module {
 public:
  // Throws unless rows and width are positive.
  Embedding(int64_t rows, int64_t width, DType dtype = DType::f32, std::optional<int64_t> padding = std::nullopt);
  Var operator()(const Tensor& ids) const { return ops::embedding(ids, weight_, padding_); }  // ops::embedding
  const Var& weight() const { return weight_; }                                               // the table

 private:
  std::optional<int64_t> padding_;
  Var weight_;
};

// Normalizes each row of x [n, width] to mean 0 and variance 1, then multiplies it by weight (gamma) and adds bias
// (beta). Both are [width], without weight decay.
class LayerNorm : public Module {
 public:
  LayerNorm(int64_t width, double eps, DType dtype = DType::f32);                          // eps: added to the variance
  Var operator()(const Var& x) const { return ops::layer_norm(x, weight_, bias_, eps_); }  // ops::layer_norm
  Var add(const Var& x, const Var& residual) const {  // normalizes x + residual in one pass
    return ops::add_layer_norm(x, residual, weight_, bias_, eps_);
  }

 private:
  double eps_;
  Var weight_, bias_;
};

// Divides each row of x [n, width] by its root mean square and multiplies it by weight (gamma) [width], without weight
// decay.
class RmsNorm : public Module {
 public:
  RmsNorm(int64_t width, double eps, DType dtype = DType::f32);                   // eps: added to the mean square
  Var operator()(const Var& x) const { return ops::rms_norm(x, weight_, eps_); }  // ops::rms_norm

 private:
  double eps_;
  Var weight_;
};

}  // namespace godwit::nn
