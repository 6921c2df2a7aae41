#include "autograd/ops/linear.h"

#include <functional>

#include "autograd/ops/bias.h"
#include "autograd/ops/kernel_weights.h"
#include "autograd/ops/linear_kernels.h"
#include "engine/cuda/blas.h"
#include "engine/cuda/call.h"
#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

using detail::Tensors;

// Whether the library may fuse bias or sums with the product; cuBLASLt documents no fusion for float64.
bool in_one_call(const Tensors& vectors, const Tensor& x) { return detail::given(vectors) && x.dtype() != DType::f64; }

struct Round {
  __device__ float operator()(float value) const { return value; }
};

// The stride of the parts in elements, if all have one shape, a constant positive stride, and addresses at multiples of
// 16 bytes; otherwise 0. Kernels with Hopper's bulk copies need unsigned strides.
int64_t stride_of(const Tensors& parts) {
  const auto begin = [&](size_t i) { return reinterpret_cast<intptr_t>(parts[i].address()); };
  const intptr_t bytes = begin(1) - begin(0);
  if (bytes <= 0 || bytes % 16 != 0 || begin(0) % 16 != 0) return 0;
  for (size_t i = 1; i < parts.size(); ++i)
    if (!parts[i].same_buffer(parts[0]) || parts[i].shape() != parts[0].shape() || begin(i) - begin(i - 1) != bytes)
      return 0;
  return bytes / size_of(parts[0].dtype());
}

// The parts of one product.
struct Strides {
  int64_t entries = 1, part = -1, vector = 0;  // number of parts; strides of parts and vectors, in elements
};
// Calls f once, for a batch of all parts, if parts and vectors have constant strides. Otherwise calls f for each part;
// `column` is the part's first column in y. Stops and returns false if f returns false.
bool for_products(const Tensors& parts, const Tensors& vectors,
                  const std::function<bool(size_t part, int64_t column, const Strides& strides)>& f) {
  const int64_t between = parts.size() > 1 ? stride_of(parts) : 0;
  const int64_t vectors_between = between > 0 && detail::given(vectors) ? stride_of(vectors) : 0;
  if (between > 0 && (vectors_between > 0 || !detail::given(vectors)))
    return f(0, 0, {std::ssize(parts), between, vectors_between});
  int64_t column = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!f(i, column, {})) return false;
    column += parts[i].dim(0);
  }
  return true;
}

// The columns [column, column + out) of x and, with several entries, the next `out` columns for each.
Tensor from_column(const Tensor& x, int64_t column) { return column == 0 ? x : x.range(column, x.numel() - column); }
MatrixStrides columns_of(const Tensor& x, int64_t out) {
  return out == x.dim(1) ? MatrixStrides{} : MatrixStrides{x.dim(1), out};
}
// One matrix for all entries.
MatrixStrides repeated(const Strides& strides) {
  return strides.entries == 1 ? MatrixStrides{} : MatrixStrides{.entry = 0};
}

}  // namespace

Tensors detail::kernel_parts(Cuda device, const Tensors& parts, DType type) {
  if (parts.size() == 1) return {kernel_weights(parts[0], type)};
  if (parts[0].dtype() == type) return parts;
  Tensors copies;
  for (const Tensor& part : parts)
    if (const Tensor copy = rounded_copy(part); copy.defined()) copies.push_back(copy);
  if (copies.size() == parts.size()) return copies;
  const Tensor all = room_for_parts(parts, type);
  int64_t at = 0;
  for (const Tensor& part : parts) {
    elementwise(device, "linear", part.numel(), Round{}, all.cuda_data<bf16>() + at, part.cuda_data<float>());
    at += part.numel();
  }
  return {all};
}

void linear_forward(Cuda device, const Tensor& x, const Tensors& w, const Tensors& bias, const Tensor& y) {
  Tensors weights = detail::kernel_parts(device, w, x.dtype());
  Tensors b = detail::given(bias) ? detail::kernel_parts(device, bias, x.dtype()) : Tensors();
  if (!b.empty() && b.size() != weights.size()) weights = {detail::joined(weights)}, b = {detail::joined(b)};
  const auto multiply_all = [&](Epilogue epilogue) {
    return for_products(weights, b, [&](size_t i, int64_t column, const Strides& strides) {
      CudaProduct product{"linear", false, true, x.dim(0), weights[i].dim(0), x.dim(1), strides.entries};
      product.of_a = repeated(strides);
      product.of_b.entry = strides.part;
      product.of_c = columns_of(y, product.n);
      product.vector_stride = strides.vector;
      const Tensor to = from_column(y, column);
      if (epilogue != Epilogue::none) return multiply_with_epilogue(device, epilogue, product, x, weights[i], b[i], to);
      product.add = !b.empty();
      multiply(device, product, x, weights[i], to);
      return true;
    });
  };
  if (in_one_call(b, x) && multiply_all(Epilogue::add_bias)) return;
  if (!b.empty()) bias_forward(device, detail::joined(b), y);
  multiply_all(Epilogue::none);
}

void linear_backward_data(Cuda device, const Tensor& dy, const Tensors& w, const Tensor& dx, bool add) {
  // One product over all columns of dy rounds the result once. It needs adjacent weights.
  const Tensors weights = detail::kernel_parts(device, w, dy.dtype());
  const int64_t between = weights.size() > 1 ? stride_of(weights) : 0;
  const Tensor all = between > 0 ? Tensor({dy.dim(1), dx.dim(1)}, dy.dtype(), dy.device()) : detail::joined(weights);
  if (between > 0) {
    const auto bytes = static_cast<size_t>(weights[0].bytes());
    const auto pitch = static_cast<size_t>(between * size_of(dy.dtype()));
    cuda_check(cudaMemcpy2DAsync(all.address(), bytes, weights[0].address(), pitch, bytes, weights.size(),
                                 cudaMemcpyDeviceToDevice, device.stream),
               "cudaMemcpy2DAsync");
  }
  multiply(device, {"linear", false, false, dy.dim(0), dx.dim(1), dy.dim(1), 1, add}, dy, all, dx);
}

void linear_backward_weights(Cuda device, const Tensor& x, const Tensor& dy, const Tensors& dw, const Tensors& db) {
  const auto multiply_all = [&](Epilogue epilogue) {
    return for_products(dw, db, [&](size_t i, int64_t column, const Strides& strides) {
      CudaProduct product{"linear", true, false, dw[i].dim(0), x.dim(1), x.dim(0), strides.entries};
      product.of_a = columns_of(dy, product.m);
      product.of_b = repeated(strides);
      product.of_c.entry = strides.part;
      product.vector_stride = strides.vector;
      const Tensor from = from_column(dy, column);
      if (epilogue != Epilogue::none) return multiply_with_epilogue(device, epilogue, product, from, x, db[i], dw[i]);
      multiply(device, product, from, x, dw[i]);
      return true;
    });
  };
  if (in_one_call(db, x) && multiply_all(Epilogue::sum_a)) return;
  if (detail::given(db)) detail::joined_bias_backward(device, dy, db);
  multiply_all(Epilogue::none);
}

}  // namespace godwit
