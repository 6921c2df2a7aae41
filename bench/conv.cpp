// Throughput (GFLOP/s) of the convolutions of ResNet-20 (28x28) and ResNet-50 (224x224).
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "autograd/ops/convolution/conv2d.h"
#include "bench/program.h"
#include "engine/context.h"
#include "engine/kernel_library.h"
#include "engine/philox.h"

using namespace godwit;

namespace {

struct Layer {
  int64_t count, size, in, out, kernel;  // number of equal layers; images have size x size pixels
  int stride;
};

const std::vector<Layer> kResnet20{{1, 28, 1, 16, 3, 1},  {6, 28, 16, 16, 3, 1}, {1, 28, 16, 32, 3, 2},
                                   {5, 14, 32, 32, 3, 1}, {1, 14, 32, 64, 3, 2}, {5, 7, 64, 64, 3, 1}};
const std::vector<Layer> kResnet50{
    {1, 224, 3, 64, 7, 2},    {1, 56, 64, 64, 1, 1},     {3, 56, 64, 64, 3, 1},    {4, 56, 64, 256, 1, 1},
    {2, 56, 256, 64, 1, 1},   {1, 56, 256, 128, 1, 1},   {1, 56, 128, 128, 3, 2},  {3, 28, 128, 128, 3, 1},
    {4, 28, 128, 512, 1, 1},  {1, 56, 256, 512, 1, 2},   {3, 28, 512, 128, 1, 1},  {1, 28, 512, 256, 1, 1},
    {1, 28, 256, 256, 3, 2},  {5, 14, 256, 256, 3, 1},   {6, 14, 256, 1024, 1, 1}, {1, 28, 512, 1024, 1, 2},
    {5, 14, 1024, 256, 1, 1}, {1, 14, 1024, 512, 1, 1},  {1, 14, 512, 512, 3, 2},  {2, 7, 512, 512, 3, 1},
    {3, 7, 512, 2048, 1, 1},  {1, 14, 1024, 2048, 1, 2}, {2, 7, 2048, 512, 1, 1}};

Tensor random_tensor(Shape shape, uint64_t seed) {
  RandomStream random(seed, Purpose::test);
  Tensor x(shape);
  for (float& value : x.span<float>()) value = random.uniform() - 0.5f;
  return x;
}

struct Convolution {
  Conv2dShape s;
  Tensor x, w, y, dy, dx, dw;

  Convolution(const Layer& layer, int64_t n, int64_t size, DType dtype)
      : s(conv2d_shape({n, size, size, layer.in}, {layer.out, layer.kernel, layer.kernel, layer.in},
                       {.stride = layer.stride, .padding = static_cast<int>(layer.kernel / 2)})),
        x(random_tensor({n, size, size, layer.in}, 1).to(dtype)),
        w(random_tensor({layer.out, layer.kernel, layer.kernel, layer.in}, 2)),
        y({n, s.ho, s.wo, layer.out}, dtype),
        dy(random_tensor(y.shape(), 3).to(dtype)),
        dx(x.shape(), dtype),
        dw(w.shape()) {}

  void forward() const { conv2d_forward(Cpu{}, s, x, w, Tensor(), y); }
  void backward_data() const { conv2d_backward_data(Cpu{}, s, dy, w, dx); }
  void backward_weights() const { conv2d_backward_weights(Cpu{}, s, x, dy, dw, Tensor()); }
  double flop() const { return 2.0 * static_cast<double>(y.numel() * s.kh * s.kw * s.c); }
};

// Checks against the float64 kernels on one image of at most 14 x 14. The tolerance covers the rounding errors of sums
// of `terms` products, and of bfloat16 filters and results.
void check_results(const Layer& layer, DType dtype) {
  const Convolution c(layer, 1, std::min<int64_t>(layer.size, 14), dtype);
  const Tensor x = c.x.to(DType::f64), w = c.w.to(DType::f64), dy = c.dy.to(DType::f64);
  const Tensor y(c.y.shape(), DType::f64), dx(c.x.shape(), DType::f64), dw(c.w.shape(), DType::f64);
  c.forward(), c.backward_data(), c.backward_weights();
  conv2d_forward(Cpu{}, c.s, x, w, Tensor(), y);
  conv2d_backward_data(Cpu{}, c.s, dy, w, dx);
  conv2d_backward_weights(Cpu{}, c.s, x, dy, dw, Tensor());
  auto expect = [&](const char* name, const Tensor& single, const Tensor& exact, int64_t terms) {
    const double unit =
        static_cast<double>(terms + 2) * 0x1p-24 + (single.dtype() == DType::bf16 ? 0x1p-7 + 0x1p-16 : 0);
    const double bound = unit * 0.25 * static_cast<double>(terms);
    for (int64_t i = 0; i < exact.numel(); ++i)
      check(std::abs(single.item(i) - exact.item(i)) <= bound, name, " of ", c.w.shape(), ": element ", i, " is ",
            single.item(i), ", expected ", exact.item(i));
  };
  expect("forward", c.y, y, c.s.kh * c.s.kw * c.s.c);
  expect("backward data", c.dx, dx, c.s.kh * c.s.kw * c.s.o);
  expect("backward weights", c.dw, dw, c.s.ho * c.s.wo);
}

double best_seconds(const std::function<void()>& f) {
  using Clock = std::chrono::steady_clock;
  f();
  double best = std::numeric_limits<double>::infinity();
  const auto end = Clock::now() + std::chrono::milliseconds(200);
  for (int i = 0; i < 3 || Clock::now() < end; ++i) {
    const auto start = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

void table(const char* name, const std::vector<Layer>& layers, int64_t batch, int threads, DType dtype) {
  const ContextGuard guard([&](Context& next) { next.threads = threads; });
  std::printf("%s, %s, batch %lld, %d thread%s; GFLOP/s forward, data, weights\n", name, name_of(dtype),
              static_cast<long long>(batch), threads, threads == 1 ? "" : "s");
  double total[3] = {};
  for (const Layer& layer : layers) {
    check_results(layer, dtype);
    const Convolution c(layer, batch, layer.size, dtype);
    const double seconds[3] = {best_seconds([&] { c.forward(); }), best_seconds([&] { c.backward_data(); }),
                               best_seconds([&] { c.backward_weights(); })};
    std::printf("  %lld x  %-20s * %-20s / %d", static_cast<long long>(layer.count), c.x.shape().str().c_str(),
                c.w.shape().str().c_str(), layer.stride);
    for (int i = 0; i < 3; ++i) {
      std::printf(" %7.1f", c.flop() / seconds[i] * 1e-9);
      total[i] += static_cast<double>(layer.count) * seconds[i];
    }
    std::printf("\n");
  }
  std::printf("  all layers: forward %.2f ms, data %.2f ms, weights %.2f ms\n", total[0] * 1e3, total[1] * 1e3,
              total[2] * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_conv [BATCH20 [BATCH50 [THREADS [TYPE]]]]\n"
      "GFLOP/s of the convolutions of ResNet-20 (28x28) and ResNet-50 (224x224).\n"
      "BATCH20, BATCH50: images of a batch of each (16, 8)   THREADS: 1 and all cores   TYPE: f32 or bf16";
  return bench::run_program(argc, argv, usage, [&] {
    const int64_t small = argc > 1 ? bench::whole_number(argv[1], "BATCH20") : 16;
    const int64_t large = argc > 2 ? bench::whole_number(argv[2], "BATCH50") : 8;
    std::vector<int> threads{1, hardware_threads()};
    if (argc > 3) threads = {static_cast<int>(bench::whole_number(argv[3], "THREADS"))};
    const std::string type = argc > 4 ? argv[4] : "f32";
    check(type == "f32" || type == "bf16", "TYPE is '", type, "'; expected f32 or bf16");
    const DType dtype = type == "f32" ? DType::f32 : DType::bf16;
    std::printf("%s\n", kernel_library().c_str());
    for (int count : threads) table("ResNet-20", kResnet20, small, count, dtype);
    for (int count : threads) table("ResNet-50", kResnet50, large, count, dtype);
  });
}
