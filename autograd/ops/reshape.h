// reshape: x with another shape. The result shares the memory of x.
#pragma once
#include "autograd/var.h"

namespace godwit::ops {

inline Var reshape(const Var& x, const Shape& shape) {  // a view of x; throws unless the number of elements is equal
  check(shape.numel() == x.shape().numel(), "reshape: ", x.shape(), " has ", x.shape().numel(), " elements, ", shape,
        " has ", shape.numel());
  return Var::result(x.value().view(shape), {x},
                     [dx = x.gradient(), from = x.shape()](const Tensor& dy) { dx.add(dy.view(from)); });
}

}  // namespace godwit::ops
