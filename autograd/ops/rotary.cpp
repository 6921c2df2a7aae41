#include "autograd/ops/rotary.h"

#include "engine/vector_loop.h"

namespace godwit {

void rotate(Cpu, const Tensor& x, const RotaryTable& table, int64_t length, int64_t first, bool inverse,
            const Tensor& y) {
  const int64_t width = x.dim(1), half = table.cos.dim(1);
  dispatch_float(x.dtype(), "rotary", [&]<class T>() {
    using C = compute_t<T>;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const C *cosines = table.cos.data<C>(), *sines = table.sin.data<C>(), sign = inverse ? C(-1) : C(1);
    compute_for(x.dim(0), std::max<int64_t>(1, (1 << 14) / (width + 1)), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t row = begin; row < end; ++row) {
        const C* cos = cosines + (first + row % length) * half;
        const C* sin = sines + (first + row % length) * half;
        for (int64_t head = row * width; head < (row + 1) * width; head += 2 * half) {
          const T *a = from + head, *b = a + half;
          T *to_a = to + head, *to_b = to_a + half;
          GODWIT_IN_PLACE
          for (int64_t c = 0; c < half; ++c) {
            const C left = C(a[c]), right = C(b[c]), s = sign * sin[c];
            to_a[c] = static_cast<T>(left * cos[c] - right * s);
            to_b[c] = static_cast<T>(right * cos[c] + left * s);
          }
        }
      }
    });
  });
}

Var ops::rotary(const Var& x, const RotaryTable& table, int64_t length, int64_t first) {
  check(table.cos.shape().rank() == 2 && table.cos.dim(1) > 0, "rotary: the table must be [positions, head_dim / 2], ",
        "got ", table.cos.shape());
  check_like(table.sin, table.cos, "rotary", "sin");
  const int64_t positions = table.cos.dim(0), head_dim = 2 * table.cos.dim(1);
  check(x.shape().rank() == 2 && x.dim(1) > 0 && x.dim(1) % head_dim == 0, "rotary: x must be [rows, heads · ",
        head_dim, "], got ", x.shape());
  check(table.cos.dtype() == compute_dtype(x.dtype()), "rotary: the table must be ", compute_dtype(x.dtype()),
        " as x is ", x.dtype(), ", got ", table.cos.dtype());
  check(length > 0 && x.dim(0) % length == 0, "rotary: ", x.dim(0), " rows do not divide into texts of ", length);
  check(first >= 0 && first + length <= positions, "rotary: positions ", first, " to ", first + length - 1,
        " exceed the table of ", positions, " positions");
  const Tensor y(x.shape(), x.dtype(), x.device());
  on_device(y, [&](auto device) { rotate(device, x.value(), table, length, first, false, y); });
  return Var::result(y, {x}, [table, length, first, dx = x.gradient()](const Tensor& dy) {
    const Tensor g = dy.shared() ? dx.target() : dy;
    on_device(dy, [&](auto device) { rotate(device, dy, table, length, first, true, g); });
    dx.add(g);
  });
}

}  // namespace godwit
