// Times attention forward and backward after a check against float64. Reports medians over the rounds. With one thread,
// it measures CPU time; with several threads or on a GPU, wall time. bench/peers/attention.py is the PyTorch
// counterpart.
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
                                            {"dtype", "f32"}, {"threads", "0"},  {"rounds", "15"},
                                            {"causal", "0"},  {"device", "cpu"}};
  Settings(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      const size_t equals = argument.find('=');
      check(equals != std::string::npos && values.contains(argument.substr(0, equals)), "'", argument,
            "' is unknown; expected one of batch= length= heads= width= filled= causal= dropout= dtype= device= threads= "
            "rounds=");
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

  Attention(const Shape& shape, int filled, bool causal, double dropout, DType dtype)
      : t{random_tensor(shape, dtype, 1), random_tensor(shape, dtype, 2),
          random_tensor(shape, dtype, 3), Tensor(),
          Tensor(shape, dtype),           Tensor({shape[0], shape[2], shape[1]}, compute_dtype(dtype))},
        options{.dropout = dropout, .key = {.seed = 1}, .causal = causal},
        d{random_tensor(shape, dtype, 4), Tensor(shape, dtype), Tensor(shape, dtype), Tensor(shape, dtype)} {
    t.kept = attention_kept(t, options);
    if (filled == 100) return;
    std::vector<uint8_t> mask(static_cast<size_t>(shape[0] * shape[1]));
    for (size_t i = 0; i < mask.size(); ++i)
      mask[i] = static_cast<int64_t>(i) % shape[1] < std::max<int64_t>(1, shape[1] * filled / 100);
    t.mask = Tensor::of(std::span<const uint8_t>(mask), {shape[0], shape[1]}).to(context().device);
  }
  void forward() const {
    on_device(t.q, [&](auto device) { attention_forward(device, t, options); });
  }
  void backward() const {
    on_device(t.q, [&](auto device) { attention_backward(device, t, options, d); });
  }
};

// Checks one batch entry and two heads against float64 on the CPU. The tolerance covers sums of `length` products of
// order 1, and bfloat16 rounding.
void check_results(int64_t length, int64_t width, int filled, bool causal, double dropout, DType dtype) {
  const Shape shape{1, length, 2, width};
  const Attention ours(shape, filled, causal, dropout, dtype);
  ours.forward(), ours.backward();
  const ContextGuard guard([](Context& next) { next.device = kCpu; });
  const Attention exact(shape, filled, causal, dropout, DType::f64);
  exact.t.q.copy_from(ours.t.q.to(kCpu).to(DType::f64)), exact.t.k.copy_from(ours.t.k.to(kCpu).to(DType::f64));
  exact.t.v.copy_from(ours.t.v.to(kCpu).to(DType::f64)), exact.d.out.copy_from(ours.d.out.to(kCpu).to(DType::f64));
  exact.forward(), exact.backward();
  const double bound = dtype == DType::bf16 ? 0.05 : 1e-7 * static_cast<double>(length);
  auto expect = [&](const char* name, const Tensor& result, const Tensor& expected) {
    const Tensor x = result.to(kCpu);
    for (int64_t i = 0; i < x.numel(); ++i)
      check(std::abs(x.item(i) - expected.item(i)) <= bound, name, ": element ", i, " is ", x.item(i), ", expected ",
            expected.item(i));
  };
  expect("forward", ours.t.out, exact.t.out);
  expect("dq", ours.d.q, exact.d.q), expect("dk", ours.d.k, exact.d.k), expect("dv", ours.d.v, exact.d.v);
}

double seconds() {
  const bool on_gpu = context().device.is_cuda();
  if (on_gpu) synchronize();
  timespec now;
  clock_gettime(context().threads == 1 && !on_gpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The time of one call. On a GPU, it is the mean of 20 consecutive calls.
template <class F>
double seconds_of(const F& call) {
  const int calls = context().device.is_cuda() ? 20 : 1;
  const double start = seconds();
  for (int i = 0; i < calls; ++i) call();
  return (seconds() - start) / calls;
}

void run(const Settings& s) {
  const Shape shape{s.number("batch"), s.number("length"), s.number("heads"), s.number("width")};
  check(s.text("dtype") == "f32" || s.text("dtype") == "bf16", "dtype is '", s.text("dtype"),
        "'; expected f32 or bf16");
  const DType dtype = s.text("dtype") == "bf16" ? DType::bf16 : DType::f32;
  const double dropout = std::stod(s.text("dropout"));
  const bool causal = s.number("causal") != 0;
  check_results(shape[1], shape[3], s.number("filled"), causal, dropout, dtype);
  const Attention attention(shape, s.number("filled"), causal, dropout, dtype);
  attention.forward(), attention.backward();
  std::vector<double> forward_s, backward_s, both_s;
  for (int i = 0; i < s.number("rounds"); ++i) {
    forward_s.push_back(seconds_of([&] { attention.forward(); }));
    backward_s.push_back(seconds_of([&] { attention.backward(); }));
    both_s.push_back(forward_s.back() + backward_s.back());
  }
  const double products =
      static_cast<double>(shape[0] * shape[2] * shape[1] * shape[1] * shape[3]) * 2e-9 * s.number("filled") / 100 /
      (causal ? 2 : 1);
  std::printf("godwit attention %s %s, %d%% filled%s, dropout %g, ", shape.str().c_str(), name_of(dtype),
              s.number("filled"), causal ? ", causal" : "", dropout);
  if (context().device.is_cuda()) std::printf("on a GPU\n");
  else std::printf("%d threads\n", context().threads);
  std::printf("  %.6f s/step   forward %.6f s, %.1f GFLOP/s   backward %.6f s, %.1f GFLOP/s\n", median(both_s),
              median(forward_s), 2 * products / median(forward_s), median(backward_s),
              5 * products / median(backward_s));
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_attention [KEY=VALUE…]\n"
      "Attention forward and backward, checked against float64 before it is timed.\n"
      "keys: batch=8 length=128 heads=12 width=64 dropout=0 dtype=f32|bf16 rounds=15\n"
      "      filled=100 (percent of the keys that are not padding)  causal=0|1  device=cpu|cuda|cuda:N\n"
      "      threads=0 (0: all cores)";
  return bench::run_program(argc, argv, usage, [&] {
    const Settings settings(argc, argv);
    Context next = context_on(parse_device(settings.text("device")));
    if (settings.number("threads") > 0) next.threads = settings.number("threads");
    const ContextGuard guard(next);
    run(settings);
  });
}
