// All layers of a ResNet, forward and backward, on a GPU compared with the CPU.
#include "autograd/ops/normalization/batch_norm.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/convolution/conv2d.h"
#include "autograd/ops/pooling/global_avg_pool.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/pooling/pool2d.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "autograd/ops/subsample_pad.h"
#include "tests/autograd/gradient_check.h"
#include "tests/on_gpu.h"

namespace godwit {
namespace cuda_residual_block_test {

using test::random_tensor, test::values;

// Parameters in the order of their creation, on the context's device.
struct Network {
  DType dtype;
  std::vector<Var> parameters;
  std::vector<Tensor> running;

  Var parameter(Shape shape, double scale) {
    const auto seed = static_cast<uint64_t>(parameters.size() + 1);
    const Tensor value = random_tensor(shape, DType::f64, seed, scale).to(compute_dtype(dtype));
    return parameters.emplace_back(value.to(context().device).clone(), true);
  }
  Var conv(const Var& x, int64_t out, int64_t kernel, int stride) {
    const Var w = parameter({out, kernel, kernel, x.dim(3)}, 1 / std::sqrt(kernel * kernel * x.dim(3)));
    return ops::conv2d(x, w, {.stride = stride, .padding = static_cast<int>(kernel / 2)});
  }
  Var norm(const Var& x, bool relu, const Var& residual = Var()) {
    const DType type = compute_dtype(dtype);
    const Var gamma = parameter({x.dim(3)}, 1), beta = parameter({x.dim(3)}, 1);
    const Tensor mean = running.emplace_back(Tensor::zeros({x.dim(3)}, type));
    const Tensor var = running.emplace_back(Tensor::full({x.dim(3)}, 1, type));
    return ops::batch_norm(x, gamma, beta, mean, var, {.relu = relu}, residual);
  }
  Var block(const Var& x, int64_t out, int stride, bool projection) {
    const Var shortcut = projection ? norm(conv(x, out, 1, stride), false) : ops::subsample_pad(x, stride, out);
    const Var y = norm(conv(x, out, 3, stride), true);
    return norm(conv(y, out, 3, 1), true, shortcut);
  }
};

// Returns the loss, then all gradients and running statistics.
std::vector<Tensor> results(DType dtype) {
  Network net{dtype, {}, {}};
  const DType type = compute_dtype(dtype);
  const Tensor images = random_tensor({4, 17, 15, 3}, DType::f64, 77).to(type).to(context().device);
  const Tensor labels = Tensor::of<int32_t>({3, 0, 6, 2}, {4});
  Var y = net.norm(net.conv(ops::cast(Var(images), dtype), 8, 7, 2), true);
  y = ops::max_pool2d(y, {.kernel = 3, .stride = 2, .padding = 1});
  y = net.block(y, 16, 2, true);
  y = net.block(y, 24, 1, false);
  const Var w = net.parameter({7, 24}, 1), bias = net.parameter({7}, 1);
  const Var logits = ops::linear(ops::cast(ops::global_avg_pool(y), type), w, bias);
  const Var loss = ops::softmax_cross_entropy(logits, labels);
  backward(loss);
  std::vector<Tensor> all{loss.value().to(kCpu)};
  for (const Var& p : net.parameters) all.push_back(p.grad().to(kCpu));
  for (const Tensor& t : net.running) all.push_back(t.to(kCpu));
  return all;
}

double distance(const Tensor& a, const Tensor& b) {
  const auto x = values(a), y = values(b);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(sum);
}

class CudaResidualBlock : public OnGpu {};

TEST_F(CudaResidualBlock, AgreesWithTheCpu) {
  for (const auto& [dtype, bound] : {std::pair{DType::f64, 1e-10}, {DType::f32, 1e-4}}) {
    const auto found = on_gpu([&, type = dtype] { return results(type); }), expected = results(dtype);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t k = 0; k < found.size(); ++k) {
      ASSERT_EQ(found[k].dtype(), expected[k].dtype());
      const Tensor zero = Tensor::zeros(expected[k].shape(), expected[k].dtype());
      EXPECT_LE(distance(found[k], expected[k]), bound * distance(expected[k], zero)) << dtype << ", result " << k;
    }
  }
}

// Early roundings flip relus and make results diverge. The GPU's bfloat16 results must therefore be about as close to
// float64 as the CPU's.
TEST_F(CudaResidualBlock, Bfloat16IsAsCloseToFloat64AsOnTheCpu) {
  const auto found = on_gpu([] { return results(DType::bf16); });
  const auto on_cpu = results(DType::bf16), exact = results(DType::f64);
  double far = 0, bound = 0;
  for (size_t k = 0; k < found.size(); ++k) {
    const Tensor zero = Tensor::zeros(exact[k].shape(), exact[k].dtype());
    const double norm = distance(exact[k], zero), apart = distance(found[k], exact[k]) / norm;
    EXPECT_LE(apart, 4 * distance(on_cpu[k], exact[k]) / norm + 0x1p-8) << "result " << k;
    far += apart;
    bound += distance(on_cpu[k], exact[k]) / norm;
  }
  EXPECT_LE(far, 1.5 * bound);  // over all results together
}

}  // namespace cuda_residual_block_test
}  // namespace godwit
