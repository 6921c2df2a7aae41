#include "autograd/ops/kernel_weights.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/lstm_steps.h"
#include "engine/cuda/launch.h"

namespace godwit {
namespace {

// One thread per cell. Indices are unsigned 32-bit numbers, whose division is fast.
template <class T>
__global__ void lstm_forward_kernel(uint32_t cells, uint32_t width, T* gates, const T* recurrent,
                                    const compute_t<T>* before, compute_t<T>* after, T* h) {
  using C = compute_t<T>;
  for (uint32_t at = static_cast<uint32_t>(grid_thread()); at < cells; at += static_cast<uint32_t>(grid_threads())) {
    const int64_t first = int64_t{at / width} * 4 * width + at % width;
    T* gate = gates + first;
    const T* more = recurrent + first;
    const int64_t f = width, g = int64_t{2} * width, o = int64_t{3} * width;
    detail::LstmCell<C> cell{C(gate[0]) + C(more[0]), C(gate[f]) + C(more[f]), C(gate[g]) + C(more[g]),
                             C(gate[o]) + C(more[o])};
    C c = before[at];
    h[at] = static_cast<T>(cell.forward(c));
    after[at] = c;
    gate[0] = static_cast<T>(cell.i), gate[f] = static_cast<T>(cell.f);
    gate[g] = static_cast<T>(cell.g), gate[o] = static_cast<T>(cell.o);
  }
}

template <class T>
__global__ void lstm_backward_kernel(uint32_t cells, uint32_t width, T* gates, const compute_t<T>* before,
                                     const compute_t<T>* after, const T* dy, const T* dh, compute_t<T>* dc) {
  using C = compute_t<T>;
  for (uint32_t at = static_cast<uint32_t>(grid_thread()); at < cells; at += static_cast<uint32_t>(grid_threads())) {
    T* gate = gates + int64_t{at / width} * 4 * width + at % width;
    const int64_t f = width, g = int64_t{2} * width, o = int64_t{3} * width;
    detail::LstmCell<C> cell{C(gate[0]), C(gate[f]), C(gate[g]), C(gate[o])};
    C d_cell = dc[at];
    cell.backward(before[at], after[at], C(dy[at]) + C(dh[at]), d_cell);
    dc[at] = d_cell;
    gate[0] = static_cast<T>(cell.i), gate[f] = static_cast<T>(cell.f);
    gate[g] = static_cast<T>(cell.g), gate[o] = static_cast<T>(cell.o);
  }
}

uint32_t cells_of(const LstmSequence& s) {
  const int64_t cells = s.cells.dim(1) * s.cells.dim(2);
  check(cells < int64_t{1} << 31, "lstm: ", cells, " cells in a step, at most 2^31 - 1 on a GPU");
  return static_cast<uint32_t>(cells);
}

}  // namespace

void lstm_forward(Cuda device, const Tensor& w_hh, const LstmSequence& s) {
  const uint32_t cells = cells_of(s);
  const Tensor w = kernel_weights(w_hh, s.gates.dtype());
  dispatch_float(s.gates.dtype(), "lstm", [&]<class T>() {
    using C = compute_t<T>;
    const auto multiply = [&](const Tensor& h, const Tensor& y) { linear_forward(device, h, {w}, {}, y); };
    const auto cell = [&](const Tensor& gates, const Tensor& recurrent, const Tensor& before, const Tensor& after,
                          const Tensor& h) {
      launch(device, "lstm", lstm_forward_kernel<T>, blocks_for(device, cells), kBlock, cells,
             static_cast<uint32_t>(h.dim(1)), gates.cuda_data<T>(), recurrent.cuda_data<T>(), before.cuda_data<C>(),
             after.cuda_data<C>(), h.cuda_data<T>());
    };
    detail::lstm_forward_steps(s, multiply, cell);
  });
}

void lstm_backward(Cuda device, const Tensor& w_hh, const LstmSequence& s, const Tensor& dy, const Tensor& dh,
                   const Tensor& dc, bool initial_h) {
  const uint32_t cells = cells_of(s);
  const Tensor w = kernel_weights(w_hh, s.gates.dtype());
  dispatch_float(s.gates.dtype(), "lstm", [&]<class T>() {
    using C = compute_t<T>;
    const auto multiply = [&](const Tensor& g, const Tensor& to) { linear_backward_data(device, g, {w}, to); };
    const auto cell = [&](const Tensor& gates, const Tensor& before, const Tensor& after, const Tensor& from_y,
                          const Tensor& from_h, const Tensor& to) {
      launch(device, "lstm", lstm_backward_kernel<T>, blocks_for(device, cells), kBlock, cells,
             static_cast<uint32_t>(from_h.dim(1)), gates.cuda_data<T>(), before.cuda_data<C>(), after.cuda_data<C>(),
             from_y.cuda_data<T>(), from_h.cuda_data<T>(), to.cuda_data<C>());
    };
    detail::lstm_backward_steps(s, dy, dh, dc, initial_h, multiply, cell);
  });
}

}  // namespace godwit
