#include "nn/layers.h"

namespace godwit::nn {

Conv2d::Conv2d(int64_t in, int64_t out, int64_t kernel, Conv2dOptions options, DType dtype, bool bias)
    : options_(options) {
  check(in > 0 && out > 0 && kernel > 0, "Conv2d: in, out and kernel must be positive, got ", in, ", ", out, ", ",
        kernel);
  check(options.groups > 0 && in % options.groups == 0 && out % options.groups == 0, "Conv2d: ", in, " to ", out,
        " channels do not divide into ", options.groups, " groups");
  weight_ = add_parameter("weight", Shape{out, kernel, kernel, in / options.groups}, compute_dtype(dtype),
                          /*decay=*/true, 0, FileLayout::channels_first);
  if (bias) bias_ = add_parameter("bias", Shape{out}, compute_dtype(dtype), /*decay=*/false);
}

Var Conv2d::operator()(const Var& x) const { return ops::conv2d(x, weight_, bias_, options_); }

BatchNorm2d::BatchNorm2d(int64_t channels, DType dtype, double gamma) {
  check(channels > 0, "BatchNorm2d: channels must be positive, got ", channels);
  weight_ = add_parameter("weight", Shape{channels}, compute_dtype(dtype), /*decay=*/false, gamma);
  bias_ = add_parameter("bias", Shape{channels}, compute_dtype(dtype), /*decay=*/false);
  running_mean_ = add_buffer("running_mean", Tensor::zeros({channels}, compute_dtype(dtype)));
  running_var_ = add_buffer("running_var", Tensor::full({channels}, 1, compute_dtype(dtype)));
}

BatchNormOptions BatchNorm2d::options(bool relu) const {
  return {.training = training(), .relu = relu, .gather = gather_};
}

Var BatchNorm2d::operator()(const Var& x, bool relu) const {
  return ops::batch_norm(x, weight_, bias_, running_mean_, running_var_, options(relu));
}

Var BatchNorm2d::add_relu(const Var& x, const Var& residual) const {
  return ops::batch_norm(x, weight_, bias_, running_mean_, running_var_, options(true), residual);
}

Linear::Linear(int64_t in, int64_t out, DType dtype, bool bias, FileLayout layout) {
  check(in > 0 && out > 0, "Linear: in and out must be positive, got ", in, ", ", out);
  parameters_.weight = add_parameter("weight", Shape{out, in}, compute_dtype(dtype), /*decay=*/true, 0, layout);
  if (bias) parameters_.bias = add_parameter("bias", Shape{out}, compute_dtype(dtype), /*decay=*/false);
}

Var Linear::operator()(const Var& x) const { return ops::joined_linear(x, {parameters_}); }

Embedding::Embedding(int64_t rows, int64_t width, DType dtype, std::optional<int64_t> padding) : padding_(padding) {
  check(rows > 0 && width > 0, "Embedding: rows and width must be positive, got ", rows, ", ", width);
  weight_ = add_parameter("weight", Shape{rows, width}, compute_dtype(dtype));
}

LayerNorm::LayerNorm(int64_t width, double eps, DType dtype) : eps_(eps) {
  check(width > 0, "LayerNorm: width must be positive, got ", width);
  weight_ = add_parameter("weight", Shape{width}, compute_dtype(dtype), /*decay=*/false, 1);
  bias_ = add_parameter("bias", Shape{width}, compute_dtype(dtype), /*decay=*/false);
}

RmsNorm::RmsNorm(int64_t width, double eps, DType dtype) : eps_(eps) {
  check(width > 0, "RmsNorm: width must be positive, got ", width);
  weight_ = add_parameter("weight", Shape{width}, compute_dtype(dtype), /*decay=*/false, 1);
}

}  // namespace godwit::nn
