#include "autograd/ops/cast.h"

#include "engine/kernel_library.h"

namespace godwit {

Var ops::cast(const Var& x, DType dtype) {
  for (const DType type : {x.dtype(), dtype})
    check(type == DType::f32 || type == DType::bf16 || type == DType::f64, "cast: converts between float32, bfloat16 ",
          "and float64, not from ", x.dtype(), " to ", dtype);
  if (x.dtype() == dtype) return x;
  return Var::result(x.value().to(dtype), {x},
                     [dx = x.gradient(), from = x.dtype()](const Tensor& dy) { dx.add(dy.to(from)); });
}

bool detail::faster_in_f32(const Var& x) {
  return x.dtype() == DType::bf16 && !x.device().is_cuda() && !fast_bf16();
}

}  // namespace godwit
