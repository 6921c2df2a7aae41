#include "autograd/ops/attention/self_attention.h"

#include "engine/parallel.h"

namespace godwit {
namespace {

int64_t attention_grain(int64_t width) { return std::max<int64_t>(1, (1 << 14) / (width + 1)); }

}  // namespace

void split_qkv(Cpu, const Tensor& qkv, const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t width = qkv.dim(1) / 3;
  dispatch_float(qkv.dtype(), "split_qkv", [&]<class T>() {
    const T* from = qkv.data<T>();
    T *to_q = q.data<T>(), *to_k = k.data<T>(), *to_v = v.data<T>();
    parallel_for(qkv.dim(0), attention_grain(3 * width), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* in = from + row * 3 * width;
        std::copy_n(in, width, to_q + row * width);
        std::copy_n(in + width, width, to_k + row * width);
        std::copy_n(in + 2 * width, width, to_v + row * width);
      }
    });
  });
}

Var ops::self_attention(const Var& qkv, int64_t batch, int64_t heads, const AttentionOptions& options,
                        const Tensor& mask, QkvOrder order) {
  check(qkv.shape().rank() == 2, "self_attention: qkv must be [batch · length, 3 · width], got ", qkv.shape());
  check(batch > 0 && qkv.dim(0) % batch == 0, "self_attention: ", qkv.dim(0), " rows do not divide into a batch of ",
        batch);
  check(heads > 0 && qkv.dim(1) % (3 * heads) == 0, "self_attention: ", qkv.dim(1),
        " columns do not divide into queries, keys and values of ", heads, " heads");
  const int64_t rows = qkv.dim(0), width = qkv.dim(1) / 3, length = rows / batch;
  const Shape shape{batch, length, heads, width / heads};
  // Queries (0), keys (1) or values (2) in a matrix like qkv.
  const auto part = [=](const Tensor& x, int64_t i) {
    return x.range((order == QkvOrder::queries_first ? i : 2 - i) * width, rows * width).view(shape);
  };
  AttentionTensors t{.q = part(qkv.value(), 0),
                     .k = part(qkv.value(), 1),
                     .v = part(qkv.value(), 2),
                     .mask = mask.defined() ? mask.to(qkv.device()) : mask,
                     .out = Tensor(shape, qkv.dtype(), qkv.device()),
                     .log_sums = Tensor({batch, heads, length}, compute_dtype(qkv.dtype()), qkv.device()),
                     .stride = 3 * width};
  check_attention(t.q, t.k, t.v, t.mask, options);
  t.kept = attention_kept(t, options);
  on_device(t.q, [&](auto device) { attention_forward(device, t, options); });
  return Var::result(t.out.view({rows, width}), {qkv}, [t, options, part, dx = qkv.gradient()](const Tensor& dy) {
    const Tensor g = dx.target();
    const AttentionGradients d{dy.view(t.q.shape()), part(g, 0), part(g, 1), part(g, 2)};
    on_device(t.q, [&](auto device) { attention_backward(device, t, options, d); });
    dx.add(g);
  });
}

}  // namespace godwit
