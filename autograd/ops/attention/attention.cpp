#include "autograd/ops/attention/attention.h"

#include <cmath>

namespace godwit {
void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                     const AttentionOptions& options) {
  check(q.shape().rank() == 4, "attention: q must be [batch, length, heads, head_dim], got ", q.shape());
  check(q.dtype() == DType::f32 || q.dtype() == DType::bf16 || q.dtype() == DType::f64,
        "attention: takes float32, bfloat16 or float64, q is ", q.dtype());
  check(k.shape().rank() == 4 && k.dim(0) == q.dim(0) && k.dim(3) == q.dim(3), "attention: k must be [", q.dim(0),
        ", length, heads, ", q.dim(3), "] as q is ", q.shape(), ", got ", k.shape());
  check(k.dim(2) > 0 && q.dim(2) % k.dim(2) == 0, "attention: ", q.dim(2), " heads of q do not divide into groups for ",
        k.dim(2), " heads of k, q is ", q.shape(), ", k ", k.shape());
  check(v.shape() == k.shape(), "attention: v must be ", k.shape(), " as k is, got ", v.shape());
  check(k.dtype() == q.dtype() && v.dtype() == q.dtype(), "attention: q, k and v must have one type, got ", q.dtype(),
        ", ", k.dtype(), " and ", v.dtype());
  check(q.numel() > 0 && k.numel() > 0, "attention: nothing to compute, q is ", q.shape(), ", k ",
        k.shape());
  check(q.dim(2) * q.dim(3) <= int64_t{1} << 29, "attention: takes rows of at most 2^29 values, q is ", q.shape());
  if (mask.defined())
    check(mask.dtype() == DType::u8 && mask.shape() == Shape{k.dim(0), k.dim(1)}, "attention: mask must be ", DType::u8,
          " ", Shape{k.dim(0), k.dim(1)}, ", got ", mask.dtype(), " ", mask.shape());
  check(options.dropout >= 0 && options.dropout < 1, "attention: dropout must be in [0, 1), got ", options.dropout);
  check(options.dropout == 0 || options.key.site < 1 << 24, "attention: the dropout's site must be below 2^24, got ",
        options.key.site);
  check(options.dropout == 0 || q.numel() / q.dim(3) * k.dim(1) <= int64_t{1} << 34,
        "attention: dropout supports at most 2^34 probabilities, q is ", q.shape(), ", k ", k.shape());
  check(!options.causal || !mask.defined(), "attention: causal attention takes no mask");
  check(!options.causal || q.dim(1) <= k.dim(1), "attention: causal attention needs at least as many keys as queries, ",
        "q is ", q.shape(), ", k ", k.shape());
  check(!options.scale || std::isfinite(*options.scale), "attention: scale must be finite, got ",
        options.scale.value_or(0));
}

Tensor attention_kept(const AttentionTensors& t, const AttentionOptions& options) {
  const bool on_tensor_cores = t.q.device().is_cuda() && t.q.dtype() == DType::bf16 && t.q.dim(3) % 8 == 0;
  if (options.dropout == 0 || !on_tensor_cores) return {};
  return Tensor({t.q.dim(0) * t.q.dim(2) * t.q.dim(1), (t.k.dim(1) + 127) / 128 * 4}, DType::u32, t.q.device());
}

Var ops::attention(const Var& q, const Var& k, const Var& v, const Tensor& mask, const AttentionOptions& options) {
  check_attention(q.value(), k.value(), v.value(), mask, options);
  AttentionTensors t{q.value(),
                     k.value(),
                     v.value(),
                     mask.defined() ? mask.to(q.device()) : mask,
                     Tensor(q.shape(), q.dtype(), q.device()),
                     Tensor({q.dim(0), q.dim(2), q.dim(1)}, compute_dtype(q.dtype()), q.device())};
  t.kept = attention_kept(t, options);
  on_device(t.q, [&](auto device) { attention_forward(device, t, options); });
  return Var::result(
      t.out, {q, k, v}, [t, options, dq = q.gradient(), dk = k.gradient(), dv = v.gradient()](const Tensor& d_out) {
        auto fresh = [](const Gradient& g, const Tensor& x) {
          return g ? Tensor(x.shape(), x.dtype(), x.device()) : Tensor();
        };
        const AttentionGradients d{d_out, fresh(dq, t.q), fresh(dk, t.k), fresh(dv, t.v)};  // q, k, v may be one leaf
        on_device(t.q, [&](auto device) { attention_backward(device, t, options, d); });
        if (dq) dq.add(d.q);
        if (dk) dk.add(d.k);
        if (dv) dv.add(d.v);
      });
}

}  // namespace godwit
