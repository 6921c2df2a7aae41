#include "autograd/ops/lstm.h"

#include "autograd/ops/add.h"
#include "autograd/ops/bias.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/lstm_steps.h"
#include "autograd/ops/packed_product.h"
#include "engine/vector_loop.h"

namespace godwit {
namespace {

// Rows per thread: at least 2048 cells.
int64_t lstm_grain(int64_t width) { return 1 + 2047 / width; }

template <class T>
void cell_forward(const Tensor& gates, const Tensor& recurrent, const Tensor& before, const Tensor& after,
                  const Tensor& h) {
  using C = compute_t<T>;
  const int64_t width = h.dim(1);
  T *all = gates.data<T>(), *to = h.data<T>();
  const T* add = recurrent.data<T>();
  const C* old_cells = before.data<C>();
  C* new_cells = after.data<C>();
  compute_for(h.dim(0), lstm_grain(width), [=](int64_t begin, int64_t end) GODWIT_INLINE {
    for (int64_t row = begin; row < end; ++row) {
      T* gate = all + 4 * row * width;
      const T* more = add + 4 * row * width;
      GODWIT_IN_PLACE
      for (int64_t k = 0; k < width; ++k) {
        detail::LstmCell<C> cell{C(gate[k]) + C(more[k]), C(gate[width + k]) + C(more[width + k]),
                                 C(gate[2 * width + k]) + C(more[2 * width + k]),
                                 C(gate[3 * width + k]) + C(more[3 * width + k])};
        C c = old_cells[row * width + k];
        to[row * width + k] = static_cast<T>(cell.forward(c));
        new_cells[row * width + k] = c;
        gate[k] = static_cast<T>(cell.i), gate[width + k] = static_cast<T>(cell.f);
        gate[2 * width + k] = static_cast<T>(cell.g), gate[3 * width + k] = static_cast<T>(cell.o);
      }
    }
  });
}

template <class T>
void cell_backward(const Tensor& gates, const Tensor& before, const Tensor& after, const Tensor& dy, const Tensor& dh,
                   const Tensor& dc) {
  using C = compute_t<T>;
  const int64_t width = dh.dim(1);
  T* all = gates.data<T>();
  const T *from_y = dy.data<T>(), *from_h = dh.data<T>();
  const C *old_cells = before.data<C>(), *new_cells = after.data<C>();
  C* d_cells = dc.data<C>();
  compute_for(dh.dim(0), lstm_grain(width), [=](int64_t begin, int64_t end) GODWIT_INLINE {
    for (int64_t row = begin; row < end; ++row) {
      T* gate = all + 4 * row * width;
      GODWIT_IN_PLACE
      for (int64_t k = 0; k < width; ++k) {
        const int64_t at = row * width + k;
        detail::LstmCell<C> cell{C(gate[k]), C(gate[width + k]), C(gate[2 * width + k]), C(gate[3 * width + k])};
        C d_cell = d_cells[at];
        cell.backward(old_cells[at], new_cells[at], C(from_y[at]) + C(from_h[at]), d_cell);
        d_cells[at] = d_cell;
        gate[k] = static_cast<T>(cell.i), gate[width + k] = static_cast<T>(cell.f);
        gate[2 * width + k] = static_cast<T>(cell.g), gate[3 * width + k] = static_cast<T>(cell.o);
      }
    }
  });
}

void check_arguments(const Var& x, const ops::LstmState& initial, const ops::LstmWeights& w) {
  check(x.shape().rank() == 3 && x.value().numel() > 0, "lstm: x must be [time, batch, input] and not empty, got ",
        x.shape());
  check(x.dtype() == DType::f32 || x.dtype() == DType::bf16 || x.dtype() == DType::f64,
        "lstm: takes float32, bfloat16 or float64, x is ", x.dtype());
  const DType type = compute_dtype(x.dtype());
  check(w.w_hh.shape().rank() == 2 && w.w_hh.dim(1) > 0 && w.w_hh.dim(0) == 4 * w.w_hh.dim(1),
        "lstm: w_hh must be [4·width, width], got ", w.w_hh.shape());
  const int64_t width = w.w_hh.dim(1);
  const auto expect = [](const Var& given, const char* name, const Shape& shape, DType dtype) {
    check(given.shape() == shape && given.dtype() == dtype, "lstm: ", name, " must be ", dtype, " ", shape, ", got ",
          given.dtype(), " ", given.shape());
  };
  expect(w.w_hh, "w_hh", {4 * width, width}, type);
  expect(w.w_ih, "w_ih", {4 * width, x.dim(2)}, type);
  check(w.b_ih.defined() == w.b_hh.defined(), "lstm: give both biases, or none");
  if (w.b_ih.defined()) expect(w.b_ih, "b_ih", {4 * width}, type), expect(w.b_hh, "b_hh", {4 * width}, type);
  if (initial.h.defined()) expect(initial.h, "the initial h", {x.dim(1), width}, x.dtype());
  if (initial.c.defined()) expect(initial.c, "the initial c", {x.dim(1), width}, type);
}

void set_initial(const Tensor& states, const Var& initial) {
  const Tensor first = detail::step_of(states, 0);
  if (initial.defined()) first.copy_from(initial.value());
  else first.zero();
}

Tensor copy_or_zeros(const Tensor& x, const Shape& shape, DType dtype, Device device) {
  if (x.defined()) return x.clone();
  const Tensor zeros(shape, dtype, device);
  zeros.zero();
  return zeros;
}

Tensor as_matrix(const Tensor& x) { return x.view({x.dim(0) * x.dim(1), x.dim(2)}); }

}  // namespace

void lstm_forward(Cpu, const Tensor& w_hh, const LstmSequence& s) {
  dispatch_float(s.gates.dtype(), "lstm", [&]<class T>() {
    const PackedProduct product(w_hh, true, s.gates.dim(1), s.gates.dtype());
    detail::lstm_forward_steps(s, product, cell_forward<T>);
  });
}

void lstm_backward(Cpu, const Tensor& w_hh, const LstmSequence& s, const Tensor& dy, const Tensor& dh, const Tensor& dc,
                   bool initial_h) {
  dispatch_float(s.gates.dtype(), "lstm", [&]<class T>() {
    const PackedProduct product(w_hh, false, s.gates.dim(1), s.gates.dtype());
    detail::lstm_backward_steps(s, dy, dh, dc, initial_h, product, cell_backward<T>);
  });
}

ops::LstmResult ops::lstm(const Var& x, const LstmState& initial, const LstmWeights& w) {
  check_arguments(x, initial, w);
  if (detail::faster_in_f32(x)) {
    const Var h = initial.h.defined() ? cast(initial.h, DType::f32) : initial.h;
    const auto [y, state] = lstm(cast(x, DType::f32), {h, initial.c}, w);
    return {cast(y, DType::bf16), {cast(state.h, DType::bf16), state.c}};
  }
  const int64_t time = x.dim(0), batch = x.dim(1), width = w.w_hh.dim(1);
  const DType type = x.dtype(), wide = compute_dtype(type);
  const Device device = x.device();
  const LstmSequence s{.gates = Tensor({time, batch, 4 * width}, type, device),
                       .hidden = Tensor({time + 1, batch, width}, type, device),
                       .cells = Tensor({time + 1, batch, width}, wide, device)};
  set_initial(s.hidden, initial.h);
  set_initial(s.cells, initial.c);
  on_device(s.gates, [&](auto there) {
    Tensor bias;
    if (w.b_ih.defined()) {
      bias = Tensor({4 * width}, wide, device);
      add_forward(there, w.b_ih.value(), w.b_hh.value(), bias);
    }
    linear_forward(there, as_matrix(x.value()), {w.w_ih.value()}, {bias}, as_matrix(s.gates));
    lstm_forward(there, w.w_hh.value(), s);
  });

  struct Final {  // gradients of the final state, if it is used
    Tensor h, c;
  };
  const auto final_state = std::make_shared<Final>();
  LstmResult result;
  result.y = Var::result(
      s.hidden.rows(1, time), {x, initial.h, initial.c, w.w_ih, w.w_hh, w.b_ih, w.b_hh},
      [s, final_state, xv = w.w_ih.requires_grad() ? x.value() : Tensor(), w_ih = w.w_ih.value(),
       w_hh = w.w_hh.value(), dx = x.gradient(), dh_0 = initial.h.gradient(), dc_0 = initial.c.gradient(),
       dw_ih = w.w_ih.gradient(), dw_hh = w.w_hh.gradient(), db_ih = w.b_ih.gradient(),
       db_hh = w.b_hh.gradient()](const Tensor& dy) {
        const Shape state{s.cells.dim(1), s.cells.dim(2)};
        const Tensor dh = copy_or_zeros(final_state->h, state, s.hidden.dtype(), s.hidden.device());
        const Tensor dc = copy_or_zeros(final_state->c, state, s.cells.dtype(), s.cells.device());
        on_device(dy, [&](auto there) {
          lstm_backward(there, w_hh, s, dy, dh, dc, bool(dh_0));
          const Tensor d_gates = as_matrix(s.gates);  // gradients of the pre-activations
          if (dw_hh) {
            const Tensor g = dw_hh.target();
            linear_backward_weights(there, as_matrix(s.hidden.rows(0, s.gates.dim(0))), d_gates, {g}, {});
            dw_hh.add(g);
          }
          const Tensor gb = db_ih ? db_ih.target() : db_hh ? db_hh.target() : Tensor();
          if (dw_ih) {
            const Tensor g = dw_ih.target();
            linear_backward_weights(there, as_matrix(xv), d_gates, {g}, {gb});
            dw_ih.add(g);
          } else if (gb.defined()) {
            bias_backward(there, d_gates, gb);
          }
          if (db_ih && db_hh) {  // equal gradients
            const Tensor g = db_hh.target();
            g.copy_from(gb);
            db_hh.add(g);
          }
          if (gb.defined()) (db_ih ? db_ih : db_hh).add(gb);
          if (dx) {
            const Tensor g = dx.target();
            linear_backward_data(there, d_gates, {w_ih}, as_matrix(g));
            dx.add(g);
          }
        });
        if (dh_0) dh_0.add(dh);
        if (dc_0) dc_0.add(dc);
      });
  // backward() runs the functions of h and c before the function of y, which reads final_state. sum() makes the
  // function of y run even if no other operation uses y.
  result.state.h = Var::result(detail::step_of(s.hidden, time), {result.y},
                               [final_state, dy = result.y.gradient()](const Tensor& dh) {
                                 final_state->h = dh;
                                 dy.sum();
                               });
  result.state.c = Var::result(detail::step_of(s.cells, time), {result.y},
                               [final_state, dy = result.y.gradient()](const Tensor& dc) {
                                 final_state->c = dc;
                                 dy.sum();
                               });
  return result;
}

}  // namespace godwit
