#include "engine/file_layout.h"

#include "engine/check.h"

namespace godwit {
namespace {

// y [n, b, a] of x [n, a, b]
void swap_last_two(const Tensor& x, int64_t n, int64_t a, int64_t b, const Tensor& y) {
  dispatch_real(x.dtype(), "file layout", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    for (int64_t k = 0; k < n; ++k, from += a * b, to += a * b)
      for (int64_t i = 0; i < a; ++i)
        for (int64_t j = 0; j < b; ++j) to[j * a + i] = from[i * b + j];
  });
}

void check_rank(const Shape& shape, FileLayout layout) {
  const int rank = layout == FileLayout::channels_first ? 4 : 2;
  check(layout == FileLayout::as_in_memory || shape.rank() == rank, "file layout: expected ", rank,
        " dimensions, got the shape ", shape);
}

}  // namespace

Shape file_shape(const Shape& s, FileLayout layout) {
  check_rank(s, layout);
  if (layout == FileLayout::channels_first) return {s[0], s[3], s[1], s[2]};
  if (layout == FileLayout::transposed) return {s[1], s[0]};
  return s;
}

Tensor to_file_layout(const Tensor& values, FileLayout layout) {
  const Tensor x = values.to(kCpu);
  if (layout == FileLayout::as_in_memory) return x;
  const Shape& s = x.shape();
  const Tensor y(file_shape(s, layout), x.dtype(), kCpu);
  if (layout == FileLayout::transposed) swap_last_two(x, 1, s[0], s[1], y);
  else
    swap_last_two(x, s[0], s[1] * s[2], s[3], y);
  return y;
}

Tensor from_file_layout(const Tensor& x, FileLayout layout) {
  if (layout == FileLayout::as_in_memory) return x;
  const Shape& s = x.shape();
  check_rank(s, layout);
  if (layout == FileLayout::transposed) return to_file_layout(x, layout);
  const Tensor y({s[0], s[2], s[3], s[1]}, x.dtype(), kCpu);
  swap_last_two(x, s[0], s[1], s[2] * s[3], y);
  return y;
}

}  // namespace godwit
