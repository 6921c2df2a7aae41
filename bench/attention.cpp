// Times attention forward and backward, after a check against float64; medians over the rounds. Measures CPU time with
// one thread, wall time with several. bench/peers/attention.py is the PyTorch counterpart.
#include "autograd/ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <string>

#include "bench/measure.h"
#include "bench/program.h"
#include "engine/context.h"

using namespace godwit;

namespace {

struct Settings {
  std::map<std::string, std::string> values{{"batch", "8"},   {"length", "128"}, {"heads", "12"},
                                            {"width", "64"},  {"filled", "100"}, {"dropout", "0"},
                                            {"dtype", "f32"}, {"threads", "0"},  {"rounds", "15"}};
  Settings(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      const size_t equals = argument.find('=');
      check(equals != std::string::npos && values.contains(argument.substr(0, equals)), "'", argument,
            "' is unknown; expected one of batch= length= heads= width= filled= dropout= dtype= threads= rounds=");
      values[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
  }
  const std::string& text(const char* name) const { return values.at(name); }
  int number(const char* name) const { return static_cast<int>(bench::whole_number(values.at(name), name, 0)); }
};

struct Attention {
  AttentionTensors t;
  AttentionOptions options;
  AttentionGradients d;

  Attention(const Shape& shape, int filled, double dropout, DType dtype)
      : t{random_tensor(shape, dtype, 1), random_tensor(shape, dtype, 2),
          random_tensor(shape, dtype, 3), Tensor(),
          Tensor(shape, dtype),           Tensor({shape[0], shape[2], shape[1]}, compute_dtype(dtype))},
        options{.dropout = dropout, .key = {.seed = 1}},
        d{random_tensor(shape, dtype, 4), Tensor(shape, dtype), Tensor(shape, dtype), Tensor(shape, dtype)} {
    if (filled == 100) return;
    t.mask = Tensor({shape[0], shape[1]}, DType::u8);
    for (int64_t i = 0; i < t.mask.numel(); ++i)
      t.mask.data<uint8_t>()[i] = i % shape[1] < std::max<int64_t>(1, shape[1] * filled / 100);
  }
  void forward() const { attention_forward(Cpu{}, t, options); }
  void backward() const { attention_backward(Cpu{}, t, options, d); }
};

// Checks one batch entry and two heads against float64, within the errors of sums of `length` products of order 1 and
// of bfloat16 rounding.
void check_results(int64_t length, int64_t width, int filled, double dropout, DType dtype) {
  const Shape shape{1, length, 2, width};
  const Attention ours(shape, filled, dropout, dtype);
  Attention exact(shape, filled, dropout, DType::f64);
  exact.t.q = ours.t.q.to(DType::f64), exact.t.k = ours.t.k.to(DType::f64), exact.t.v = ours.t.v.to(DType::f64);
  exact.d.out = ours.d.out.to(DType::f64);
  for (const Attention* a : {&ours, static_cast<const Attention*>(&exact)}) a->forward(), a->backward();
  const double bound = dtype == DType::bf16 ? 0.05 : 1e-7 * static_cast<double>(length);
  auto expect = [&](const char* name, const Tensor& x, const Tensor& expected) {
    for (int64_t i = 0; i < x.numel(); ++i)
      check(std::abs(x.item(i) - expected.item(i)) <= bound, name, ": element ", i, " is ", x.item(i), ", expected ",
            expected.item(i));
  };
  expect("forward", ours.t.out, exact.t.out);
  expect("dq", ours.d.q, exact.d.q), expect("dk", ours.d.k, exact.d.k), expect("dv", ours.d.v, exact.d.v);
}

double seconds() {
  timespec now;
  clock_gettime(context().threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void run(const Settings& s) {
  const Shape shape{s.number("batch"), s.number("length"), s.number("heads"), s.number("width")};
  check(s.text("dtype") == "f32" || s.text("dtype") == "bf16", "dtype is '", s.text("dtype"),
        "'; expected f32 or bf16");
  const DType dtype = s.text("dtype") == "bf16" ? DType::bf16 : DType::f32;
  const double dropout = std::stod(s.text("dropout"));
  check_results(shape[1], shape[3], s.number("filled"), dropout, dtype);
  const Attention attention(shape, s.number("filled"), dropout, dtype);
  attention.forward(), attention.backward();
  std::vector<double> forward_s, backward_s, both_s;
  for (int i = 0; i < s.number("rounds"); ++i) {
    const double start = seconds();
    attention.forward();
    const double middle = seconds();
    attention.backward();
    const double end = seconds();
    forward_s.push_back(middle - start), backward_s.push_back(end - middle), both_s.push_back(end - start);
  }
  const double products =
      static_cast<double>(shape[0] * shape[2] * shape[1] * shape[1] * shape[3]) * 2e-9 * s.number("filled") / 100;
  std::printf("godwit attention %s %s, %d%% filled, dropout %g, %d threads\n", shape.str().c_str(), name_of(dtype),
              s.number("filled"), dropout, context().threads);
  std::printf("  %.5f s/step   forward %.5f s, %.1f GFLOP/s   backward %.5f s, %.1f GFLOP/s\n", median(both_s),
              median(forward_s), 2 * products / median(forward_s), median(backward_s),
              5 * products / median(backward_s));
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_attention [KEY=VALUE…]\n"
      "Attention forward and backward, checked against float64 before it is timed.\n"
      "keys: batch=8 length=128 heads=12 width=64 dropout=0 dtype=f32|bf16 rounds=15\n"
      "      filled=100 (percent of the keys that are not padding)  threads=0 (0: all cores)";
  return bench::run_program(argc, argv, usage, [&] {
    const Settings settings(argc, argv);
    Context next = context();
    if (settings.number("threads") > 0) next.threads = settings.number("threads");
    const ContextGuard guard(next);
    run(settings);
  });
}
