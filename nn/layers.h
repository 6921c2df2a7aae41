// Layers with parameters, named and shaped as in PyTorch but channels last. `dtype` is the type of x; parameters and
// buffers have it too, but are float32 beside bfloat16.
#pragma once
#include <functional>
#include <optional>
#include <utility>

#include "autograd/ops/normalization/batch_norm.h"
#include "autograd/ops/convolution/conv2d.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/normalization/layer_norm.h"
#include "nn/module.h"

namespace godwit::nn {

// x [n, h, w, in] -> [n, h', w', out]. Parameters: weight [out, kernel, kernel, in / groups], zero until initialised,
// and bias [out] when asked for (no weight decay).
class Conv2d : public Module {
 public:
  Conv2d(int64_t in, int64_t out, int64_t kernel, Conv2dOptions options = {}, DType dtype = DType::f32,
         bool bias = false);
  Var operator()(const Var& x) const;

 private:
  Conv2dOptions options_;
  Var weight_, bias_;
};

// x [n, h, w, channels], normalised per channel: by the batch in training mode, by the running statistics else.
// Parameters weight (gamma) and bias (beta), both [channels] without weight decay; buffers running_mean, running_var.
// PyTorch's num_batches_tracked is left out: its loaders do without it.
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(int64_t channels, DType dtype = DType::f32, double gamma = 1);
  Var operator()(const Var& x, bool relu = false) const;  // relu: max(y, 0) in the same pass
  Var add_relu(const Var& x, const Var& residual) const;  // max(y + residual, 0) in the same pass
  // From now on a batch is that of all ranks between which `gather` gathers (BatchNormOptions); see nn/replicas.h.
  void synchronize(std::function<Tensor(const Tensor&)> gather) { gather_ = std::move(gather); }

 private:
  BatchNormOptions options(bool relu) const;

  Var weight_, bias_;
  Tensor running_mean_, running_var_;
  std::function<Tensor(const Tensor&)> gather_;
};

// x [n, in] -> x·weightᵀ + bias, [n, out]. Parameters weight [out, in] and bias [out] (no weight decay), zero until
// initialised.
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, DType dtype = DType::f32);
  Var operator()(const Var& x) const;

 private:
  Var weight_, bias_;
};

// Rows of a table by their numbers: ids int32 [n] -> [n, width], of the type of the parameter weight [rows, width],
// which is zero until initialised. Row `padding` gets no gradient.
class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t width, DType dtype = DType::f32, std::optional<int64_t> padding = std::nullopt);
  Var operator()(const Tensor& ids) const { return ops::embedding(ids, weight_, padding_); }
  const Var& weight() const { return weight_; }

 private:
  std::optional<int64_t> padding_;
  Var weight_;
};

// x [n, width], each row normalised to mean 0 and variance 1, times weight (gamma) plus bias (beta), both [width]
// without weight decay.
class LayerNorm : public Module {
 public:
  LayerNorm(int64_t width, double eps, DType dtype = DType::f32);
  Var operator()(const Var& x) const { return ops::layer_norm(x, weight_, bias_, eps_); }
  Var add(const Var& x, const Var& residual) const {  // of x + residual, in the same pass
    return ops::add_layer_norm(x, residual, weight_, bias_, eps_);
  }

 private:
  double eps_;
  Var weight_, bias_;
};

}  // namespace godwit::nn
