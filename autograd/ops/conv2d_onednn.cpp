// Images stay [n, h, w, c]: measured on ResNet-20 and ResNet-50, oneDNN is as fast on them as on its own blocked
// layouts. Filters are reordered at each call to what the primitive asks for, which costs little beside the
// convolution.
#include <optional>

#include "autograd/ops/conv2d_kernels.h"
#include "engine/onednn.h"

namespace godwit::detail {
namespace {

using onednn::Desc;
using onednn::Dims;
using onednn::Plan;
constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

onednn::Key key_of(const Conv2dShape& s, bool bias) {
  return onednn::Key(s.n, s.h, s.w, s.c, s.o, s.kh, s.kw, s.stride, s.padding, s.dilation, s.groups, bias);
}

// What the plans of one convolution are made of.
struct Parts {
  explicit Parts(const Conv2dShape& s)
      : x(onednn::activations({s.n, s.h, s.w, s.c})),
        w(onednn::filters({s.o, s.kh, s.kw, s.c / s.groups}, s.groups)),
        w_any(onednn::any_layout(w)),
        bias(onednn::vector(s.o)),
        y(onednn::activations({s.n, s.ho, s.wo, s.o})),
        stride{s.stride, s.stride},
        dilation{s.dilation - 1, s.dilation - 1},
        padding{s.padding, s.padding} {}
  Desc x, w, w_any, bias, y;
  Dims stride, dilation, padding;
};

Plan<dnnl::convolution_forward> plan_forward(const Parts& p, bool bias) {
  using P = dnnl::convolution_forward;
  constexpr auto kKind = dnnl::prop_kind::forward_training;
  if (bias)
    return onednn::plan<P>("conv2d", kKind, kAlgorithm, p.x, p.w_any, p.bias, p.y, p.stride, p.dilation, p.padding,
                           p.padding);
  return onednn::plan<P>("conv2d", kKind, kAlgorithm, p.x, p.w_any, p.y, p.stride, p.dilation, p.padding, p.padding);
}

// A convolution's plan and, where it asks for another layout of the filters, the way to or from that.
template <class P>
struct Entry {
  Plan<P> conv;
  Desc plain, wanted;
  std::optional<Plan<dnnl::reorder>> reorder;
  Entry(Plan<P> plan, const Desc& plain_layout, const Desc& wanted_layout, bool back)
      : conv(std::move(plan)), plain(plain_layout), wanted(wanted_layout) {
    if (wanted == plain) return;
    if (back) reorder.emplace(onednn::plan_reorder(wanted, plain));
    else reorder.emplace(onednn::plan_reorder(plain, wanted));
  }

  // The filters in the layout wanted.
  Tensor arranged(const Tensor& w) const {
    if (!reorder) return w;
    Tensor result({static_cast<int64_t>(wanted.get_size())}, DType::u8);
    run(*reorder, {{DNNL_ARG_FROM, onednn::memory(plain, w)}, {DNNL_ARG_TO, onednn::memory(wanted, result)}});
    return result;
  }
};

}  // namespace

void conv2d_forward_f32(const Conv2dShape& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
  using E = Entry<dnnl::convolution_forward>;
  const E& entry = onednn::cached<E>(key_of(s, bias.defined()), [&] {
    const Parts p(s);
    auto plan = plan_forward(p, bias.defined());
    return E(plan, p.w, plan.desc.weights_desc(), false);
  });
  const auto& desc = entry.conv.desc;
  const Tensor filters = entry.arranged(w);
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, onednn::memory(desc.src_desc(), x)},
                                                  {DNNL_ARG_WEIGHTS, onednn::memory(entry.wanted, filters)},
                                                  {DNNL_ARG_DST, onednn::memory(desc.dst_desc(), y)}};
  if (bias.defined()) arguments.emplace(DNNL_ARG_BIAS, onednn::memory(desc.bias_desc(), bias));
  run(entry.conv, std::move(arguments));
}

void conv2d_backward_data_f32(const Conv2dShape& s, const Tensor& dy, const Tensor& w, const Tensor& dx) {
  using P = dnnl::convolution_backward_data;
  const auto& entry = onednn::cached<Entry<P>>(key_of(s, false), [&] {
    const Parts p(s);
    auto plan = onednn::plan_backward<P>("conv2d", plan_forward(p, false), kAlgorithm, p.x, p.w_any, p.y, p.stride,
                                         p.dilation, p.padding, p.padding);
    return Entry<P>(plan, p.w, plan.desc.weights_desc(), false);
  });
  const auto& desc = entry.conv.desc;
  const Tensor filters = entry.arranged(w);
  run(entry.conv, {{DNNL_ARG_DIFF_DST, onednn::memory(desc.diff_dst_desc(), dy)},
                   {DNNL_ARG_WEIGHTS, onednn::memory(entry.wanted, filters)},
                   {DNNL_ARG_DIFF_SRC, onednn::memory(desc.diff_src_desc(), dx)}});
}

void conv2d_backward_weights_f32(const Conv2dShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw,
                                 const Tensor& db) {
  using P = dnnl::convolution_backward_weights;
  const auto& entry = onednn::cached<Entry<P>>(key_of(s, db.defined()), [&] {
    const Parts p(s);
    const auto forward = plan_forward(p, db.defined());
    auto plan = db.defined() ? onednn::plan_backward<P>("conv2d", forward, kAlgorithm, p.x, p.w_any, p.bias, p.y,
                                                        p.stride, p.dilation, p.padding, p.padding)
                             : onednn::plan_backward<P>("conv2d", forward, kAlgorithm, p.x, p.w_any, p.y, p.stride,
                                                        p.dilation, p.padding, p.padding);
    return Entry<P>(plan, p.w, plan.desc.diff_weights_desc(), true);
  });
  const auto& desc = entry.conv.desc;
  const Tensor filters = entry.reorder ? Tensor({static_cast<int64_t>(entry.wanted.get_size())}, DType::u8) : dw;
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, onednn::memory(desc.src_desc(), x)},
                                                  {DNNL_ARG_DIFF_DST, onednn::memory(desc.diff_dst_desc(), dy)},
                                                  {DNNL_ARG_DIFF_WEIGHTS, onednn::memory(entry.wanted, filters)}};
  if (db.defined()) arguments.emplace(DNNL_ARG_DIFF_BIAS, onednn::memory(desc.diff_bias_desc(), db));
  run(entry.conv, std::move(arguments));
  if (entry.reorder)
    run(*entry.reorder,
        {{DNNL_ARG_FROM, onednn::memory(entry.wanted, filters)}, {DNNL_ARG_TO, onednn::memory(entry.plain, dw)}});
}

}  // namespace godwit::detail
