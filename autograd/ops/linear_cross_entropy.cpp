#include "autograd/ops/linear_cross_entropy.h"

#include <algorithm>

#include "autograd/accumulate.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/kernel_weights.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/packed_product.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "engine/gemm.h"
#include "engine/graph.h"
#include "engine/parallel.h"

namespace godwit {
namespace {

constexpr int64_t kParts = 14, kFewLogits = 1 << 21;  // up to kFewLogits logits are kept
constexpr int64_t kRowUnit = 4, kClassUnit = 64;      // sizes of parts are multiples of these
// With at least kManyRows rows, the forward pass computes the gradients in kRowParts parts of the rows. Each part reads
// and writes the gradient of w, which takes less time than a second computation of the logits.
constexpr int64_t kManyRows = 2048, kRowParts = 10;
constexpr int64_t kStrideUnit = 8;  // unit of the row stride of logits on a GPU; unaligned rows are slow

// Rows or classes of a part: a multiple of `unit`.
int64_t part_of(int64_t n, int64_t unit, int64_t parts) { return ((n + parts - 1) / parts + unit - 1) / unit * unit; }

// Calls f(first, count) for the parts of n rows or classes. Products with a multiple of `unit` are faster, so the last
// n mod `unit` are a separate part.
template <class F>
void for_parts(int64_t n, int64_t unit, int64_t parts, const F& f) {
  const int64_t whole = n / unit * unit, size = part_of(n, unit, parts);
  for (int64_t first = 0; first < whole; first += size) f(first, std::min(size, whole - first));
  if (whole < n) f(whole, n - whole);
}

Tensor in_type(const Tensor& x, DType type) { return x.dtype() == type ? x : x.to(type); }

// Logits in rows of `stride` elements; on the CPU in w's type, on a GPU in x's type.
Tensor logits_of(const Tensor& x, const Tensor& w, const PackedProduct& product, int64_t stride) {
  const Tensor y({x.dim(0), stride}, x.dtype(), x.device());
  product(x, y);
  return x.device().is_cuda() ? y : in_type(y, w.dtype());
}

// dx = d_logits · w, or dx + d_logits · w if `add`; dx may be float32 for bfloat16 d_logits.
template <class D>
void add_product(D device, const Tensor& d_logits, const Tensor& w, const Tensor& dx, bool add) {
  if (dx.device().is_cuda() || (!add && dx.dtype() == d_logits.dtype()))
    return linear_backward_data(device, d_logits, {w}, dx, add);
  const Tensor part(dx.shape(), d_logits.dtype());
  linear_backward_data(device, d_logits, {w}, part);
  if (add) accumulate(device, in_type(part, dx.dtype()), dx);
  else dx.copy_from(in_type(part, dx.dtype()));
}

// Tensors and settings that backward reads.
struct Saved {
  Tensor x, w, labels, log_sums;
  std::optional<int32_t> ignore;
  double share;
};

void backward_in_parts(const Saved& s, const Tensor& dy, const Gradient& dx, const Gradient& dw) {
  const Tensor gw = dw ? dw.target() : Tensor();
  const Tensor gx = dx ? Tensor(s.x.shape(), s.w.dtype(), s.x.device()) : Tensor();  // sums of the parts
  for_parts(s.w.dim(0), kClassUnit, kParts, [&](int64_t first, int64_t count) {
    const Tensor w = kernel_weights(s.w.rows(first, count), s.x.dtype());
    const Tensor logits = logits_of(s.x, s.w.rows(first, count), {w, true, s.x.dim(0), s.x.dtype()}, count);
    on_device(s.x, [&](auto device) {
      softmax_cross_entropy_backward(device, logits, s.labels, 0, s.ignore, s.log_sums, dy, s.share, logits, first);
      const Tensor d_logits = in_type(logits, s.x.dtype());
      if (dw) linear_backward_weights(device, s.x, d_logits, {gw.rows(first, count)}, {});
      if (dx) add_product(device, d_logits, w, gx, first != 0);
    });
  });
  if (dw) dw.add(gw);
  if (dx) dx.add(in_type(gx, s.x.dtype()));
}

// Whether the forward pass computes the gradients, if they are wanted. gemm() adds to float32 and float64, but not to
// bfloat16.
bool computes_early(const Var& x, const Var& w) {
  return !x.device().is_cuda() && x.dtype() == w.dtype() && x.dim(0) >= kManyRows;
}

// The gradients of the loss, computed in its forward pass.
struct EarlyGradients {
  EarlyGradient x, w;

  // Computes the gradient of x for the rows of a part, and adds their share to the gradient of w.
  void add_part(const Tensor& x_part, const Tensor& w_value, const Tensor& d_logits, int64_t first) const {
    dispatch_real(d_logits.dtype(), "linear_cross_entropy", [&]<class T>() {
      const int64_t n = d_logits.dim(0), classes = d_logits.dim(1), width = x_part.dim(1);
      const T* d = d_logits.data<T>();
      if (w)
        gemm(Cpu{}, true, false, classes, width, n, T{1}, d, classes, x_part.data<T>(), width, T(first != 0),
             w.memory().data<T>(), width);
      if (x)
        gemm(Cpu{}, false, false, n, width, classes, T{1}, d, classes, w_value.data<T>(), width, T{0},
             x.memory().rows(first, n).data<T>(), width);
    });
  }
  // In backward: adds the gradients, multiplied by dy.
  void add(const Tensor& dy) const {
    for (const EarlyGradient* gradient : {&w, &x}) {
      if (!*gradient) continue;
      dispatch_real(dy.dtype(), "linear_cross_entropy", [&]<class T>() {
        T* values = gradient->memory().data<T>();
        const T factor = *dy.data<T>();
        if (factor == 1) return;
        parallel_for(gradient->memory().numel(), 1 << 14, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) values[i] *= factor;
        });
      });
      gradient->add();
    }
  }
};

}  // namespace

Var ops::linear_cross_entropy(const Var& x, const Var& w, const Tensor& labels, std::optional<int32_t> ignore) {
  check(x.shape().rank() == 2 && w.shape().rank() == 2 && x.dim(1) == w.dim(1),
        "linear_cross_entropy: x must be [n, width] and the weight [classes, width], got ", x.shape(), " and ",
        w.shape());
  const int64_t n = x.dim(0), classes = w.dim(0);
  if (n * classes <= kFewLogits) return softmax_cross_entropy(cast(linear(x, w), w.dtype()), labels, 0, ignore);
  check(w.dtype() == compute_dtype(x.dtype()), "linear_cross_entropy: x is ", x.dtype(), ", the weight must be ",
        compute_dtype(x.dtype()), ", got ", w.dtype());
  if (detail::faster_in_f32(x)) return linear_cross_entropy(cast(x, w.dtype()), w, labels, ignore);
  const Tensor here = labels.to(kCpu);
  check_labels(n, classes, here, ignore, "linear_cross_entropy");
  check(!ignore || !capturing(), "linear_cross_entropy: `ignore` makes the host count rows, which a step captured as ",
        "CUDA graphs cannot repeat; do not use `ignore` in captured steps");
  int64_t counted = 0;
  for (const int32_t label : here.span<int32_t>()) counted += label != ignore;
  const double share = 1 / static_cast<double>(std::max<int64_t>(counted, 1));
  const Saved saved{x.value(), w.value(), labels.to(x.device()), Tensor({n}, DType::f64, x.device()), ignore, share};
  const Tensor losses({n}, DType::f64, x.device()), mean({}, w.dtype(), x.device());
  const bool by_rows = computes_early(x, w), early = by_rows && wants_grad({x, w});
  const EarlyGradients gradients{EarlyGradient(early ? x.gradient() : Gradient()),
                                 EarlyGradient(early ? w.gradient() : Gradient())};
  const Tensor one({}, w.dtype(), kCpu);  // the gradient of the loss
  one.fill(1);
  const int64_t parts = by_rows ? kRowParts : kParts;  // the loss has the same bits with and without gradients
  const PackedProduct product(saved.w, true, part_of(n, kRowUnit, parts), x.dtype());
  const int64_t unit = x.device().is_cuda() ? kStrideUnit : 1, stride = (classes + unit - 1) / unit * unit;
  for_parts(n, kRowUnit, parts, [&](int64_t first, int64_t count) {
    const Tensor logits = logits_of(saved.x.rows(first, count), saved.w, product, stride);
    const Tensor of_rows = saved.labels.rows(first, count), sums = saved.log_sums.rows(first, count);
    on_device(mean, [&](auto device) {
      softmax_cross_entropy_forward(device, logits, of_rows, 0, ignore, losses.rows(first, count), sums, classes);
    });
    if (!early) return;
    softmax_cross_entropy_backward(Cpu{}, logits, of_rows, 0, ignore, sums, one, share, logits);
    gradients.add_part(saved.x.rows(first, count), saved.w, logits, first);
  });
  on_device(mean, [&](auto device) { mean_loss(device, losses, share, mean); });
  if (early) return Var::result(mean, {x, w}, [gradients](const Tensor& dy) { gradients.add(dy); });
  return Var::result(mean, {x, w}, [saved, dx = x.gradient(), dw = w.gradient()](const Tensor& dy) {
    backward_in_parts(saved, dy, dx, dw);
  });
}

}  // namespace godwit
