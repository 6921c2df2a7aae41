#include <algorithm>

#include "autograd/ops/linear_kernels.h"
#include "engine/onednn.h"
#include "engine/packed_weights.h"

namespace godwit::detail {
namespace {

using onednn::Desc;
using onednn::Plan;
using onednn::Weighted;
using Product = std::optional<Weighted<dnnl::matmul>>;
using WeightGradient = dnnl::inner_product_backward_weights;

// x [n, in] · op(w) [in, out] + bias; w is stored as float32, [out, in] if transposed. Packed weights also make float32
// faster; without packed weights, gemm() is as fast as this product.
const Product& product(int64_t n, int64_t in, int64_t out, bool transposed, bool bias, DType type) {
  return onednn::cached_if_any<dnnl::matmul>(onednn::Key(n, in, out, transposed, bias, type == DType::f32), type, [&] {
    const Desc x = onednn::matrix(n, in, type), y = onednn::matrix(n, out, type);
    const Desc w = onednn::any_layout(onednn::matrix(in, out, type));
    const Desc plain = transposed ? onednn::transposed(onednn::matrix(out, in)) : onednn::matrix(in, out);
    const auto plan = bias ? onednn::plan<dnnl::matmul>("linear", x, w, onednn::matrix(1, out), y)
                           : onednn::plan<dnnl::matmul>("linear", x, w, y);
    const bool blocks = std::string_view(plan.desc.impl_info_str()).starts_with("brg");
    if (type == DType::f32 && !blocks) return Product();
    return Product(std::in_place, plan, plain, plan.desc.weights_desc(), Weighted<dnnl::matmul>::Use::read);
  });
}

// The product of a linear layer with `rows` rows and without a bias.
const Product& product_of(const Tensor& w, bool transposed, int64_t rows, DType type) {
  return product(rows, w.dim(transposed ? 1 : 0), w.dim(transposed ? 0 : 1), transposed, false, type);
}

void multiply_packed(const Product& product, const Tensor& x, const Tensor& weights, const Tensor& bias,
                     const Tensor& y) {
  const auto& desc = product->plan.desc;
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, onednn::memory(desc.src_desc(), x)},
                                                  {DNNL_ARG_WEIGHTS, onednn::memory(product->wanted, weights)},
                                                  {DNNL_ARG_DST, onednn::memory(desc.dst_desc(), y)}};
  if (bias.defined()) arguments.emplace(DNNL_ARG_BIAS, onednn::memory(desc.bias_desc(), bias));
  run(product->plan, std::move(arguments));
}

bool multiply(const Product& product, const Tensor& x, const Tensors& w, const Tensor& bias, const Tensor& y) {
  if (!product) return false;
  const bool in_blocks =
      product->blocks != onednn::Blocks::none &&
      std::all_of(w.begin(), w.end() - 1, [](const Tensor& part) { return part.dim(0) % kBlockColumns == 0; });
  multiply_packed(product, x, in_blocks ? product->packed(w) : product->packed(joined(w)), bias, y);
  return true;
}

}  // namespace

bool library_linear_forward(const Tensor& x, const Tensors& w, const Tensor& bias, const Tensor& y) {
  return multiply(product(x.dim(0), x.dim(1), y.dim(1), true, bias.defined(), x.dtype()), x, w, bias, y);
}

bool library_linear_backward_data(const Tensor& dy, const Tensors& w, const Tensor& dx) {
  return multiply(product(dy.dim(0), dy.dim(1), dx.dim(1), false, false, dy.dtype()), dy, w, Tensor(), dx);
}

Tensor library_linear_pack(const Tensor& w, bool transposed, int64_t rows, DType type) {
  const Product& product = product_of(w, transposed, rows, type);
  return product ? product->packed(w) : Tensor();
}

bool library_linear_packed(const Tensor& x, const Tensor& w, const Tensor& packed, bool transposed, int64_t rows,
                           const Tensor& y) {
  const auto& product = product_of(w, transposed, rows, x.dtype());
  if (x.dim(0) == rows) return multiply_packed(product, x, packed, Tensor(), y), true;
  const Desc layout = product->wanted;
  const auto& other = product_of(w, transposed, x.dim(0), x.dtype());
  if (!other || other->wanted != layout) return false;
  multiply_packed(other, x, packed, Tensor(), y);
  return true;
}

// With only AVX512_BF16, the library's kernel for its own layout of dw is slower.
bool library_linear_backward_weights(const Tensor& x, const Tensor& dy, const Tensors& dw) {
  if (x.dtype() == DType::f32) return false;
  const int64_t n = x.dim(0), in = x.dim(1), out = dy.dim(1);
  const auto& gradient = onednn::cached_if_any<WeightGradient>(onednn::Key(n, in, out), DType::bf16, [&] {
    using P = dnnl::inner_product_forward;
    const Desc from = onednn::matrix(n, in, DType::bf16), to = onednn::matrix(n, out, DType::bf16);
    const Desc w = onednn::any_layout(onednn::matrix(out, in, DType::bf16)), plain = onednn::matrix(out, in);
    const auto forward = onednn::plan<P>("linear", dnnl::prop_kind::forward_training, from, w, to);
    const auto plan = onednn::plan_backward<WeightGradient>(
        "linear", forward, from, onednn::avx512_bf16() ? plain : onednn::any_layout(plain), to);
    return std::optional<Weighted<WeightGradient>>(std::in_place, plan, plain, plan.desc.diff_weights_desc(),
                                                   Weighted<WeightGradient>::Use::written);
  });
  if (!gradient) return false;
  const auto& desc = gradient->plan.desc;
  const Tensor all = dw.size() == 1 ? dw[0] : Tensor({out, in}), weights = gradient->scratch(all);
  run(gradient->plan, {{DNNL_ARG_SRC, onednn::memory(desc.src_desc(), x)},
                       {DNNL_ARG_DIFF_DST, onednn::memory(desc.diff_dst_desc(), dy)},
                       {DNNL_ARG_DIFF_WEIGHTS, onednn::memory(gradient->wanted, weights)}});
  gradient->unpack(weights, all);
  if (dw.size() > 1) split(all, dw);
  return true;
}

}  // namespace godwit::detail
