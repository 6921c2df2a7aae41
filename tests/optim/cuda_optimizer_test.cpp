// Complete optimizers on a GPU, one rank. After several steps, parameters and all state must match the CPU bit for bit.
#include <gmock/gmock.h>

#include <limits>

#include "optim/birder.h"
#include "optim/ema.h"
#include "optim/sgd.h"
#include "tests/gpu_memory.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_optimizer_test {

std::vector<uint8_t> bytes_of(const Tensor& x) {
  const Tensor here = x.to(kCpu);
  const auto* at = static_cast<const uint8_t*>(here.address());
  return {at, at + here.bytes()};
}

// Three parameters in two buckets; only the second decays, so ranges begin at unaligned offsets.
Buckets made_buckets() {
  std::vector<Parameter> parameters;
  for (const int64_t size : {301, 77, 1030})
    parameters.push_back({"p" + std::to_string(size), Var(Tensor::of(random_values<float>(size, 1), {size}), true),
                          size == 77});
  return Buckets(parameters, {1200, 1200, 32});
}

// Bytes of parameters and state after five steps with fixed gradients, on the context's device.
std::vector<std::vector<uint8_t>> trained(const OptimizerConfig& config) {
  Buckets buckets = made_buckets();
  Communicator alone{};
  const OptimizerMethod& method = config.method();
  const auto optimizer = method.make(config.options(), {buckets, alone, 42});
  const double lr = config.number("lr");
  for (int64_t step = 1; step <= 5; ++step)
    for (Bucket& bucket : buckets) {
      auto g = random_values<float>(bucket.padded_numel(), static_cast<uint32_t>(10 * step + bucket.index));
      for (int64_t i = 0; i < bucket.padded_numel(); ++i)
        if (i >= bucket.numel || i % 7 == 3) g[static_cast<size_t>(i)] = 0;
      bucket.grad.copy_from(Tensor::of(g, bucket.grad.shape()));
      if (method.communicates_itself) optimizer->exchange(bucket, alone, {step, lr});
      optimizer->apply(bucket, {step, lr});
    }
  std::vector<std::vector<uint8_t>> all;
  for (const Bucket& bucket : buckets) all.push_back(bytes_of(bucket.param));
  for (const StateTensor& part : optimizer->state()) all.push_back(bytes_of(part.values));
  return all;
}

class CudaOptimizer : public OnGpu {
 protected:
  void expect_same(OptimizerConfig config) const {
    SCOPED_TRACE(config.name());
    config.set("lr", 0.01).set("weight_decay", 0.1).set("decay_norm_and_bias", false);
    const auto expected = trained(config), found = on_gpu([&] { return trained(config); });
    EXPECT_EQ(found, expected);
  }
};

TEST_F(CudaOptimizer, TrainingMatchesTheCpuBitForBit) {
  expect_same(Sgdm::Options{.nesterov = true});
  for (const char* name : {"sgd", "adam", "adamw", "bert_adam", "softsignsgd"}) expect_same(name);
}

TEST_F(CudaOptimizer, BirderMatchesTheCpuBitForBit) {
  expect_same("birder");
  expect_same(Birder::Options{.quantizer = Birder::Quantizer::sign, .t0 = 2});
  expect_same(Birder::Options{.moments = Birder::Moments::bf16, .errors = Birder::Errors::int8});
  expect_same(Birder::Options{.mask = Birder::Mask::automatic, .frozen = "p77"});
}

// Bytes of the parameters, the averages and a buffer, with the averages swapped in.
std::vector<std::vector<uint8_t>> averaged(int64_t owned_from) {
  Buckets buckets = made_buckets();
  buckets[1].owned.begin = owned_from;
  const Tensor buffer = Tensor::of(random_values<double>(13, 3), {13});
  Ema ema(buckets, {buffer}, 0.9);
  for (int64_t step = 1; step <= 3; ++step) {
    for (Bucket& bucket : buckets) {
      const auto stream = static_cast<uint32_t>(10 * step + bucket.index);
      bucket.param.copy_from(Tensor::of(random_values<float>(bucket.padded_numel(), stream), bucket.param.shape()));
      ema.update(bucket, step);
    }
    ema.update_buffers(step);
    buffer.fill(static_cast<double>(step) / 3);
  }
  ema.swap();
  std::vector<std::vector<uint8_t>> all{bytes_of(buffer)};
  for (const Bucket& bucket : buckets) all.push_back(bytes_of(bucket.param));
  return all;
}

TEST_F(CudaOptimizer, WeightAveragesMatchTheCpuBitForBit) {
  for (const int64_t owned_from : {0, 3}) {
    const auto expected = averaged(owned_from), found = on_gpu([&] { return averaged(owned_from); });
    EXPECT_EQ(found, expected);
  }
}

TEST_F(CudaOptimizer, BirderRefusesNonFiniteGradientsBeforeItUpdatesParameters) {
  on_gpu([] {
    Buckets buckets = made_buckets();
    Communicator alone{};
    Birder birder({.lr = 0.01}, buckets, alone, 42);
    Bucket& bucket = buckets[0];
    std::vector<float> g(static_cast<size_t>(bucket.padded_numel()), 1);
    g[5] = std::numeric_limits<float>::infinity();
    bucket.grad.copy_from(Tensor::of(g, bucket.grad.shape()));
    const auto before = bytes_of(bucket.param);
    EXPECT_THAT(error_of([&] {
                  birder.exchange(bucket, alone, {1, 0.01});
                }),
                ::testing::HasSubstr("birder: step 1: the gradient of 'p1030' is inf at element 5"));
    EXPECT_EQ(bytes_of(bucket.param), before);
  });
}

}  // namespace cuda_optimizer_test
}  // namespace godwit
