// Times the memory-bound operations of a ResNet-50 training step at batch 16, 224². The times are relative to a lower
// bound: the moved bytes divided by the copy bandwidth of the same run. The benchmark rotates over many buffers, so
// that inputs come from memory instead of a cache.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "autograd/accumulate.h"
#include "autograd/ops/add.h"
#include "autograd/ops/normalization/batch_norm.h"
#include "autograd/ops/pooling/global_avg_pool.h"
#include "autograd/ops/pooling/pool2d.h"
#include "bench/measure.h"
#include "bench/program.h"

using namespace godwit;

namespace {

constexpr int64_t kBatch = 16;

struct Layer {
  int64_t size, channels;  // [16, size, size, channels]
  int count;               // number of layers of this kind in ResNet-50
  Shape shape() const { return {kBatch, size, size, channels}; }
};

const std::vector<Layer> kRelu{{112, 64, 1}, {56, 64, 6},   {56, 128, 1}, {28, 128, 7},
                               {28, 256, 1}, {14, 256, 11}, {14, 512, 1}, {7, 512, 5}};
const std::vector<Layer> kProjection{{56, 256, 1}, {28, 512, 1}, {14, 1024, 1}, {7, 2048, 1}};
const std::vector<Layer> kResidual{{56, 256, 3}, {28, 512, 4}, {14, 1024, 6}, {7, 2048, 3}};
const std::vector<Layer> kBlockInput{{56, 64, 1}, {56, 256, 3}, {28, 512, 4}, {14, 1024, 6}, {7, 2048, 2}};
const std::vector<Layer> kStem{{112, 64, 1}};
const std::vector<Layer> kLast{{7, 2048, 1}};

// Inputs and outputs of one call.
struct Set {
  Tensor x, dy, other, y, dx;
};

// Tensors of consecutive calls. Together, they are larger than any cache.
std::vector<Set> sets_of(Shape shape, DType dtype) {
  const int64_t bytes = 5 * shape.numel() * size_of(dtype);
  std::vector<Set> sets(sets_beyond_caches(bytes));
  for (Set& s : sets)
    s = {random_tensor(shape, dtype, 1), random_tensor(shape, dtype, 2), random_tensor(shape, dtype, 3),
         Tensor::zeros(shape, dtype), Tensor::zeros(shape, dtype)};
  return sets;
}

class Bench {
 public:
  explicit Bench(DType dtype) : dtype_(dtype) {
    copy_ = copy_rate();
    std::printf("%d thread%s, %s: copy %.1f GB/s\n", context().threads, context().threads > 1 ? "s" : "",
                name_of(dtype), copy_ * 1e-6);
  }
  // `passes` tensors of the shape are read or written, plus `bytes` bytes of other memory per element.
  void operator()(const char* name, const std::vector<Layer>& layers, double passes, double bytes,
                  const std::function<void(const Set&)>& f) const {
    double ms = 0, moved = 0;
    for (const Layer& layer : layers) {
      const auto sets = sets_of(layer.shape(), dtype_);
      ms += layer.count * median_ms(sets, f);
      moved += layer.count * static_cast<double>(layer.shape().numel()) *
               (passes * static_cast<double>(size_of(dtype_)) + bytes);
    }
    std::printf("  %-34s %8.2f ms, %7.1f MB, %5.2f of the floor\n", name, ms, moved * 1e-6, ms / (moved / copy_));
    std::fflush(stdout);
  }

 private:
  DType dtype_;
  double copy_;  // bytes per ms
};

void batch_norms(const Bench& bench) {
  struct Channels {
    Tensor mean, variance, one, zero, d_gamma, d_beta;
    explicit Channels(const Tensor& x)
        : mean({x.dim(3)}, DType::f64),
          variance(mean.clone()),
          one(Tensor::full({x.dim(3)}, 1)),
          zero(Tensor::zeros({x.dim(3)})),
          d_gamma(zero.clone()),
          d_beta(zero.clone()) {}
    BatchNormState state(const Tensor& x, bool relu, const Tensor& y = Tensor()) const {
      return {x, zero, one, one, zero, relu, y};
    }
  };
  auto forward = [&](bool relu, bool residual) {
    return [=](const Set& s) {
      const Channels c(s.x);
      batch_norm_statistics(Cpu{}, s.x, c.mean, c.variance);
      batch_norm_forward(Cpu{}, c.state(s.x, relu), residual ? s.other : Tensor(), s.y);
    };
  };
  auto backward = [&](bool relu, bool residual) {
    return [=](const Set& s) {
      const Channels c(s.x);
      const BatchNormState state = c.state(s.x, relu, residual ? s.y : Tensor());
      batch_norm_backward_parameters(Cpu{}, state, s.dy, s.dy, c.d_gamma, c.d_beta);
      batch_norm_backward_input(Cpu{}, state, s.dy, true, c.d_gamma, c.d_beta, residual ? s.dx : s.dy);
    };
  };
  bench("batch_norm relu", kRelu, 3, 0, forward(true, false));
  bench("batch_norm relu backward", kRelu, 5, 0, backward(true, false));
  bench("batch_norm", kProjection, 3, 0, forward(false, false));
  bench("batch_norm backward", kProjection, 5, 0, backward(false, false));
  bench("batch_norm add relu", kResidual, 4, 0, forward(true, true));
  bench("batch_norm add relu backward", kResidual, 7, 0, backward(true, true));
}

void pooling(const Bench& bench) {
  const Pool2dOptions options{3, 2, 1};
  const Tensor none({0});
  auto small = [=](const Set& s) { return s.y.range(0, s.x.numel() / 4).view(pool2d_shape(s.x, options, "bench")); };
  const Tensor taps(Shape{kBatch, 56, 56, 64}, DType::u8);
  bench("max_pool2d", kStem, 1.25, 0.25,
        [=](const Set& s) { max_pool2d_forward(Cpu{}, s.x, options, small(s), taps); });
  bench("max_pool2d backward", kStem, 1.25, 0.25,
        [=](const Set& s) { max_pool2d_backward(Cpu{}, taps, small(s), options, s.dx); });
  auto means = [](const Set& s) { return s.y.range(0, kBatch * s.x.dim(3)).view({kBatch, s.x.dim(3)}); };
  bench("global_avg_pool", kLast, 1, 0, [=](const Set& s) { global_avg_pool_forward(Cpu{}, s.x, means(s)); });
  bench("global_avg_pool backward", kLast, 1, 0,
        [=](const Set& s) { global_avg_pool_backward(Cpu{}, means(s), s.dx); });
}

// The separate operations that the fused operations replace, and the sum of two gradients at a block's input.
void elementwise(const Bench& bench) {
  bench("gradients summed", kBlockInput, 3, 0, [](const Set& s) { accumulate(Cpu{}, s.dy, s.dx); });
  bench("relu (where not fused)", kRelu, 2, 0, [](const Set& s) { relu_forward(Cpu{}, s.x, s.y); });
  bench("relu backward (where not fused)", kRelu, 3, 0, [](const Set& s) { relu_backward(Cpu{}, s.x, s.dy, s.dy); });
  bench("add (where not fused)", kResidual, 3, 0, [](const Set& s) { add_forward(Cpu{}, s.x, s.other, s.y); });
}

// Checks forward kernels in float32, element by element, against their formulas in double precision.
void check_results() {
  const Shape shape{2, 14, 14, 64};
  const Tensor x = random_tensor(shape, DType::f32, 1), b = random_tensor(shape, DType::f32, 2), y(shape);
  relu_forward(Cpu{}, x, y);
  check_elements("relu", y, [&](int64_t i) { return std::max(0.0, x.item(i)); });
  relu_backward(Cpu{}, x, b, y);
  check_elements("relu backward", y, [&](int64_t i) { return x.item(i) > 0 ? b.item(i) : 0; });
  add_forward(Cpu{}, x, b, y);
  check_elements("add", y, [&](int64_t i) { return x.item(i) + b.item(i); });
  const Tensor one = Tensor::full({64}, 1), zero = Tensor::zeros({64});
  batch_norm_forward(Cpu{}, {x, zero, one, one, zero, true, Tensor()}, b, y);
  check_elements("batch_norm add relu", y, [&](int64_t i) { return std::max(0.0, x.item(i) + b.item(i)); });
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_elementwise [THREADS…]\n"
      "Memory-bound operations of a ResNet-50 training step at batch 16, 224x224, relative to their floor.\n"
      "THREADS: thread counts to measure (1 and 2)";
  return bench::run_program(argc, argv, usage, [&] {
    check_results();
    for_threads_and_types(argc, argv, [](DType dtype) {
      const Bench bench(dtype);
      batch_norms(bench);
      pooling(bench);
      elementwise(bench);
    });
  });
}
