#include "autograd/ops/rotary.h"
#include "engine/cuda/launch.h"

namespace godwit {
namespace {

// One thread per pair of columns.
template <class T>
__global__ void rotary_kernel(int64_t pairs, int64_t width, int64_t half, const compute_t<T>* cosines,
                              const compute_t<T>* sines, int64_t length, int64_t first, compute_t<T> sign, const T* x,
                              T* y) {
  using C = compute_t<T>;
  for (int64_t i = grid_thread(); i < pairs; i += grid_threads()) {
    const int64_t row = i / (width / 2), of_row = i % (width / 2), c = of_row % half;
    const int64_t at = row * width + of_row / half * 2 * half + c, entry = (first + row % length) * half + c;
    const C a = C(x[at]), b = C(x[at + half]), cos = cosines[entry], sin = sign * sines[entry];
    y[at] = static_cast<T>(a * cos - b * sin);
    y[at + half] = static_cast<T>(b * cos + a * sin);
  }
}

}  // namespace

void rotate(Cuda device, const Tensor& x, const RotaryTable& table, int64_t length, int64_t first, bool inverse,
            const Tensor& y) {
  dispatch_float(x.dtype(), "rotary", [&]<class T>() {
    using C = compute_t<T>;
    launch(device, "rotary", rotary_kernel<T>, blocks_for(device, x.numel() / 2), kBlock, x.numel() / 2, x.dim(1),
           table.cos.dim(1), table.cos.cuda_data<C>(), table.sin.cuda_data<C>(), length, first, inverse ? C(-1) : C(1),
           x.cuda_data<T>(), y.cuda_data<T>());
  });
}

}  // namespace godwit
