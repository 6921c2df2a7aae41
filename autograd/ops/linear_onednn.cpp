#include "autograd/ops/linear_kernels.h"
#include "engine/onednn.h"

namespace godwit::detail {
namespace {

using onednn::Desc;
using onednn::Plan;
using onednn::Weighted;

// What the plans of one product are made of: w as it lies in memory and dw are float32.
struct Parts {
  Parts(int64_t n, int64_t in, int64_t out)
      : x(onednn::matrix(n, in, DType::bf16)),
        w(onednn::matrix(out, in)),
        w_any(onednn::any_layout(onednn::matrix(out, in, DType::bf16))),
        dw_any(onednn::any_layout(w)),
        bias(onednn::vector(out)),
        y(onednn::matrix(n, out, DType::bf16)) {}
  Desc x, w, w_any, dw_any, bias, y;
};

Plan<dnnl::inner_product_forward> plan_forward(const Parts& p, bool bias) {
  using P = dnnl::inner_product_forward;
  constexpr auto kKind = dnnl::prop_kind::forward_training;
  return bias ? onednn::plan<P>("linear", kKind, p.x, p.w_any, p.bias, p.y)
              : onednn::plan<P>("linear", kKind, p.x, p.w_any, p.y);
}

// make(parts)'s plan for x [n, in] and y [n, out].
template <class P, class Make>
const std::optional<Weighted<P>>& entry(int64_t n, int64_t in, int64_t out, bool bias, Make make) {
  return onednn::cached_if_any<P>(onednn::Key(n, in, out, bias), DType::bf16, [&] { return make(Parts(n, in, out)); });
}

}  // namespace

bool linear_forward_bf16(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
  using P = dnnl::inner_product_forward;
  const auto& product = entry<P>(x.dim(0), w.dim(1), w.dim(0), bias.defined(), [&](const Parts& p) {
    auto plan = plan_forward(p, bias.defined());
    return Weighted<P>(plan, p.w, plan.desc.weights_desc(), Weighted<P>::Use::read);
  });
  if (!product) return false;
  const auto& desc = product->plan.desc;
  const Tensor weights = product->arranged(w);
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, onednn::memory(desc.src_desc(), x)},
                                                  {DNNL_ARG_WEIGHTS, onednn::memory(product->wanted, weights)},
                                                  {DNNL_ARG_DST, onednn::memory(desc.dst_desc(), y)}};
  if (bias.defined()) arguments.emplace(DNNL_ARG_BIAS, onednn::memory(desc.bias_desc(), bias));
  run(product->plan, std::move(arguments));
  return true;
}

bool linear_backward_data_bf16(const Tensor& dy, const Tensor& w, const Tensor& dx) {
  using P = dnnl::inner_product_backward_data;
  const auto& product = entry<P>(dy.dim(0), w.dim(1), w.dim(0), false, [&](const Parts& p) {
    auto plan = onednn::plan_backward<P>("linear", plan_forward(p, false), p.x, p.w_any, p.y);
    return Weighted<P>(plan, p.w, plan.desc.weights_desc(), Weighted<P>::Use::read);
  });
  if (!product) return false;
  const auto& desc = product->plan.desc;
  const Tensor weights = product->arranged(w);
  run(product->plan, {{DNNL_ARG_DIFF_DST, onednn::memory(desc.diff_dst_desc(), dy)},
                      {DNNL_ARG_WEIGHTS, onednn::memory(product->wanted, weights)},
                      {DNNL_ARG_DIFF_SRC, onednn::memory(desc.diff_src_desc(), dx)}});
  return true;
}

bool linear_backward_weights_bf16(const Tensor& x, const Tensor& dy, const Tensor& dw) {
  using P = dnnl::inner_product_backward_weights;
  const auto& product = entry<P>(x.dim(0), dw.dim(1), dw.dim(0), false, [&](const Parts& p) {
    auto plan = onednn::plan_backward<P>("linear", plan_forward(p, false), p.x, p.dw_any, p.y);
    return Weighted<P>(plan, p.w, plan.desc.diff_weights_desc(), Weighted<P>::Use::written);
  });
  if (!product) return false;
  const auto& desc = product->plan.desc;
  const Tensor weights = product->fresh(dw);
  run(product->plan, {{DNNL_ARG_SRC, onednn::memory(desc.src_desc(), x)},
                      {DNNL_ARG_DIFF_DST, onednn::memory(desc.diff_dst_desc(), dy)},
                      {DNNL_ARG_DIFF_WEIGHTS, onednn::memory(product->wanted, weights)}});
  product->restore(weights, dw);
  return true;
}

}  // namespace godwit::detail
