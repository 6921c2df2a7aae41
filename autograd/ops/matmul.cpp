#include "autograd/ops/matmul.h"

#include "engine/gemm.h"

namespace godwit {

void matmul(Cpu, bool trans_a, bool trans_b, const Tensor& a, const Tensor& b, const Tensor& c) {
  if (c.dtype() == DType::bf16) {
    const Tensor wide(c.shape(), DType::f32, kCpu);
    matmul(Cpu{}, trans_a, trans_b, a.to(DType::f32), b.to(DType::f32), wide);
    return c.copy_from(wide.to(DType::bf16));
  }
  const int last = c.shape().rank() - 1;
  const int64_t m = c.dim(last - 1), n = c.dim(last), k = trans_a ? a.dim(last - 1) : a.dim(last);
  const int64_t entries = last == 2 ? c.dim(0) : 1;
  dispatch_real(c.dtype(), "matmul", [&]<class T>() {
    for (int64_t i = 0; i < entries; ++i)
      gemm(Cpu{}, trans_a, trans_b, m, n, k, T{1}, a.data<T>() + i * m * k, a.dim(last), b.data<T>() + i * k * n,
           b.dim(last), T{0}, c.data<T>() + i * m * n, n);
  });
}

namespace {
void multiply(bool trans_a, bool trans_b, const Tensor& a, const Tensor& b, const Tensor& c) {
  on_device(c, [&](auto device) { matmul(device, trans_a, trans_b, a, b, c); });
}
}  // namespace

Var ops::matmul(const Var& a, const Var& b, bool trans_a, bool trans_b) {
  const int rank = a.shape().rank(), last = rank - 1;
  check(rank == 2 || rank == 3, "matmul: a must be a matrix or [batch, rows, columns], got ", a.shape());
  check(b.shape().rank() == rank && (rank == 2 || b.dim(0) == a.dim(0)), "matmul: b must have ",
        rank == 2 ? "two extents" : "three extents and a's first extent", ", a is ", a.shape(), ", b ", b.shape());
  check(a.dtype() == DType::f32 || a.dtype() == DType::bf16 || a.dtype() == DType::f64,
        "matmul: takes float32, bfloat16 or float64, a is ", a.dtype());
  check(b.dtype() == a.dtype(), "matmul: a and b must have the same type, got ", a.dtype(), " and ", b.dtype());
  const int64_t m = a.dim(trans_a ? last : last - 1), k = a.dim(trans_a ? last - 1 : last);
  const int64_t n = b.dim(trans_b ? last - 1 : last);
  check(b.dim(trans_b ? last : last - 1) == k, "matmul: a ", a.shape(), trans_a ? " transposed" : "", " has ", k,
        " columns, b ", b.shape(), trans_b ? " transposed" : "", " has ", b.dim(trans_b ? last : last - 1), " rows");
  check(a.value().numel() > 0 && b.value().numel() > 0, "matmul: nothing to compute, a is ", a.shape(), ", b ",
        b.shape());
  const Tensor c(rank == 2 ? Shape{m, n} : Shape{a.dim(0), m, n}, a.dtype(), a.device());
  multiply(trans_a, trans_b, a.value(), b.value(), c);
  return Var::result(
      c, {a, b},
      [trans_a, trans_b, av = b.requires_grad() ? a.value() : Tensor(), bv = a.requires_grad() ? b.value() : Tensor(),
       da = a.gradient(), db = b.gradient()](const Tensor& dc) {
        if (da) {  // dc · op(b)ᵀ, or its transpose
          const Tensor g = da.target();
          if (trans_a) multiply(trans_b, true, bv, dc, g);
          else multiply(false, !trans_b, dc, bv, g);
          da.add(g);
        }
        if (db) {  // op(a)ᵀ · dc, or its transpose
          const Tensor g = db.target();
          if (trans_b) multiply(true, trans_a, dc, av, g);
          else multiply(!trans_a, false, av, dc, g);
          db.add(g);
        }
      });
}

}  // namespace godwit
