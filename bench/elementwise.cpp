// Times of the elementwise ops, batch normalisation and pooling against a copy of the same bytes, on 1 and 2 threads.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>

#include "autograd/accumulate.h"
#include "autograd/ops/add.h"
#include "autograd/ops/batch_norm.h"
#include "autograd/ops/global_avg_pool.h"
#include "autograd/ops/pool2d.h"
#include "engine/context.h"
#include "engine/philox.h"

using namespace godwit;

namespace {

Tensor random_tensor(Shape shape, uint64_t seed) {
  RandomStream random(seed, Purpose::test);
  Tensor x(shape);
  for (float& value : x.span<float>()) value = static_cast<float>(random.normal());
  return x;
}

double best_ms(const std::function<void()>& f) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void line(const char* name, const Tensor& x, int tensors, double ms) {
  std::printf("  %-28s %8.3f ms %7.1f GB/s\n", name, ms, static_cast<double>(tensors * x.bytes()) / ms * 1e-6);
}

// Every kernel against its formula in double, on each element.
void check_results(const Tensor& x, const Tensor& b, const Tensor& y) {
  auto expect = [&](const char* name, const std::function<double(int64_t)>& formula) {
    for (int64_t i = 0; i < x.numel(); ++i)
      check(std::abs(y.item(i) - formula(i)) <= 1e-6 * (1 + std::abs(formula(i))), name, ": element ", i, " is ",
            y.item(i));
  };
  relu_forward(Cpu{}, x, y);
  expect("relu", [&](int64_t i) { return std::max(0.0, x.item(i)); });
  relu_backward(Cpu{}, x, b, y);
  expect("relu backward", [&](int64_t i) { return x.item(i) > 0 ? b.item(i) : 0; });
  add_forward(Cpu{}, x, b, y);
  expect("add", [&](int64_t i) { return x.item(i) + b.item(i); });
  add_relu_forward(Cpu{}, x, b, y);
  expect("add_relu", [&](int64_t i) { return std::max(0.0, x.item(i) + b.item(i)); });
  y.zero();
  accumulate(Cpu{}, x, y);
  expect("accumulate", [&](int64_t i) { return x.item(i); });
}

void elementwise(Shape shape) {
  const Tensor x = random_tensor(shape, 1), b = random_tensor(shape, 2), y(shape);
  check_results(x, b, y);
  line("copy", x, 2, best_ms([&] { y.copy_from(x); }));
  line("relu", x, 2, best_ms([&] { relu_forward(Cpu{}, x, y); }));
  line("relu backward", x, 3, best_ms([&] { relu_backward(Cpu{}, x, b, y); }));
  line("add", x, 3, best_ms([&] { add_forward(Cpu{}, x, b, y); }));
  line("add_relu", x, 3, best_ms([&] { add_relu_forward(Cpu{}, x, b, y); }));
  line("accumulate", x, 3, best_ms([&] { accumulate(Cpu{}, x, y); }));
}

void batch_norm(Shape shape) {
  const Shape channels{shape[3]};
  const Tensor x = random_tensor(shape, 1), dy = random_tensor(shape, 2), y(shape), dx(shape);
  const Tensor one = Tensor::full(channels, 1), zero = Tensor::zeros(channels), d_gamma(channels), d_beta(channels);
  const Tensor mean(channels, DType::f64), variance(channels, DType::f64);
  batch_norm_statistics(Cpu{}, x, mean, variance);
  for (int64_t c = 0; c < channels[0]; ++c)  // of normal numbers, to five standard deviations
    check(std::abs(mean.item(c)) < 0.05 && std::abs(variance.item(c) - 1) < 0.1, "batch_norm: channel ", c);
  for (bool relu : {false, true}) {
    const BatchNormState state{x, zero, one, one, zero, relu};
    std::printf(" batch_norm%s\n", relu ? " with relu" : "");
    line("statistics", x, 1, best_ms([&] { batch_norm_statistics(Cpu{}, x, mean, variance); }));
    line("forward", x, 2, best_ms([&] { batch_norm_forward(Cpu{}, state, y); }));
    for (int64_t i = 0; i < x.numel(); ++i)
      check(y.item(i) == (relu ? std::max(0.0, x.item(i)) : x.item(i)), "batch_norm: element ", i, " is ", y.item(i));
    line("backward, gamma and beta", x, 2,
         best_ms([&] { batch_norm_backward_parameters(Cpu{}, state, dy, d_gamma, d_beta); }));
    line("backward, x", x, 3, best_ms([&] { batch_norm_backward_input(Cpu{}, state, dy, true, d_gamma, d_beta, dx); }));
  }
}

// Windows of 3×3, stride 2, padding 1, of a tensor of ones: every maximum is 1, and the gradients' sum is kept.
void pooling(Shape shape) {
  const Pool2dOptions options{3, 2, 1};
  const Tensor x = Tensor::full(shape, 1), dx(shape);
  const Shape out = pool2d_shape(x, options, "pooling");
  const Tensor y(out), taps(out, DType::u8), means({shape[0], shape[3]});
  std::printf(" pooling (GB/s of the input's bytes)\n");
  line("max_pool2d", x, 1, best_ms([&] { max_pool2d_forward(Cpu{}, x, options, y, taps); }));
  line("max_pool2d backward", x, 1, best_ms([&] { max_pool2d_backward(Cpu{}, taps, y, options, dx); }));
  double sum = 0;
  for (int64_t i = 0; i < y.numel(); ++i) check(y.item(i) == 1, "max_pool2d: element ", i, " is ", y.item(i));
  for (int64_t i = 0; i < x.numel(); ++i) sum += dx.item(i);
  check(sum == static_cast<double>(y.numel()), "max_pool2d backward: the sum is ", sum);
  line("avg_pool2d", x, 1, best_ms([&] { avg_pool2d_forward(Cpu{}, x, options, y); }));
  line("avg_pool2d backward", x, 1, best_ms([&] { avg_pool2d_backward(Cpu{}, y, options, dx); }));
  line("global_avg_pool", x, 1, best_ms([&] { global_avg_pool_forward(Cpu{}, x, means); }));
  for (int64_t i = 0; i < means.numel(); ++i) check(means.item(i) == 1, "global_avg_pool: element ", i);
  line("global_avg_pool backward", x, 1, best_ms([&] { global_avg_pool_backward(Cpu{}, means, dx); }));
}

}  // namespace

int main() {
  for (int threads : {1, 2}) {
    Context next = context();
    next.threads = threads;
    const ContextGuard guard(next);
    for (const Shape& shape : {Shape{16, 28, 28, 16}, Shape{16, 56, 56, 64}, Shape{16, 56, 56, 256}}) {
      std::printf("%d thread%s, %s\n", threads, threads > 1 ? "s" : "", shape.str().c_str());
      elementwise(shape);
      batch_norm(shape);
      pooling(shape);
    }
  }
}
