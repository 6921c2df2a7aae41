// bfloat16 copies of parameters, written by the optimizer's kernels. Training must be bit-identical with and without
// copies, and no operation may read an outdated copy.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>

#include "autograd/ops/cast.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/relu.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/single_group.h"
#include "engine/context.h"
#include "engine/data_ptr.h"
#include "engine/graph.h"
#include "engine/rounded_copy.h"
#include "engine/update_each.h"
#include "optim/checkpoint.h"
#include "optim/ema.h"
#include "tests/gpu_memory.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_rounded_copy_test {

constexpr double kLr = 0.05;

Tensor values(const Shape& shape, uint32_t stream) {
  return Tensor::of(random_values<float>(shape.numel(), stream), shape);
}

// Two linear layers in bfloat16 in two buckets, and an optimizer.
struct Net {
  Var w1{values({32, 16}, 1), true}, b1{values({32}, 2), true}, w2{values({8, 32}, 3), true}, b2{values({8}, 4), true};
  std::shared_ptr<Group> group = std::make_shared<SingleGroup>();
  Communicator alone{{1, 1}, 0, group, group, group, group, std::make_shared<CommStats>()};
  DataParallel replica;
  Tensor labels{{4}, DType::i32, kCpu};
  Tensor x = values({4, 16}, 5).to(DType::bf16);

  explicit Net(const OptimizerConfig& optimizer = "sgdm", const std::function<void(DataParallelOptions&)>& change = {})
      : replica({{"w1", w1}, {"b1", b1}, {"w2", w2}, {"b2", b2, false}}, alone, options_of(optimizer, change)) {
    for (int32_t i = 0; i < 4; ++i) labels.data<int32_t>()[i] = 2 * i;
  }
  static DataParallelOptions options_of(const OptimizerConfig& optimizer,
                                        const std::function<void(DataParallelOptions&)>& change) {
    // Options for a run of eight steps, so that a warm-up ends after the first steps.
    DataParallelOptions options{.optimizer = for_run(optimizer, Schedule({}, kLr, 8, 8), 8)};
    options.buckets = {.first_bytes = 1024, .bytes = 1024};
    if (change) change(options);
    return options;
  }
  Var loss() const {
    const Var y = ops::linear(ops::relu(ops::linear(Var(x), w1, b1)), w2, b2);
    return ops::softmax_cross_entropy(ops::cast(y, DType::f32), labels);
  }
  float evaluate() const {
    const NoGrad no_grad;
    return static_cast<float>(loss().value().item());
  }
  bool current() const {
    bool all = true;
    for (const Var& var : {w1, b1, w2, b2}) all = rounded_copy(var.value()).defined() && all;
    return all;
  }
  std::vector<float> parameters() {
    replica.finish_checks();
    std::vector<float> all;
    for (const Var& var : {w1, b1, w2, b2})
      for (const float value : var.value().to_vector<float>()) all.push_back(value);
    return all;
  }
};

using Between = std::function<void(Net&, int64_t step, std::vector<float>& outcome)>;

// Parameters after eight steps, and the values that `between` appends after each step. `copies`: false makes every
// forward pass round the parameters itself.
std::vector<float> trained(bool copies, const OptimizerConfig& optimizer, const Between& between = {},
                           const std::function<void(DataParallelOptions&)>& change = {}) {
  Net net(optimizer, change);
  std::vector<float> outcome;
  for (int64_t step = 1; step <= 8; ++step) {
    if (!copies) net.replica.parameters_changed();
    EXPECT_TRUE(copies || !net.current());
    net.replica.step(net.loss(), kLr);
    if (between) between(net, step, outcome);
  }
  for (const float value : net.parameters()) outcome.push_back(value);
  return outcome;
}

class CudaRoundedCopy : public OnGpu {
 protected:
  void expect_same(const OptimizerConfig& optimizer, const Between& between = {},
                   const std::function<void(DataParallelOptions&)>& change = {}) const {
    SCOPED_TRACE(optimizer.name());
    on_gpu([&] {
      EXPECT_EQ(trained(true, optimizer, between, change), trained(false, optimizer, between, change));
      return 0;
    });
  }
};

TEST_F(CudaRoundedCopy, EveryOptimizerTrainsToTheSameBits) {
  for (const std::string& name : method_names<OptimizerMethod>()) {
    int64_t current = 0;
    expect_same(name, [&](Net& net, int64_t, std::vector<float>&) { current += net.current(); });
    // Both runs: copies are current after each update, and expire before the forward pass of the second run.
    EXPECT_EQ(current, 2 * 8) << name;
  }
}

TEST_F(CudaRoundedCopy, HoldsTheRoundedValues) {
  on_gpu([] {
    Net net;
    for (int i = 0; i < 3; ++i) net.replica.step(net.loss(), kLr);
    for (const Var& var : {net.w1, net.b1, net.w2, net.b2}) {
      const Tensor copy = rounded_copy(var.value());
      if (!copy.defined()) {
        ADD_FAILURE() << "no copy of " << var.shape();
        continue;
      }
      EXPECT_EQ(copy.to(DType::f32).to_vector<float>(), var.value().to(DType::bf16).to(DType::f32).to_vector<float>());
    }
    EXPECT_FALSE(rounded_copy(net.w1.value().range(1, 8)).defined());  // not aligned
    EXPECT_TRUE(rounded_copy(net.w1.value().rows(3, 2)).defined());
    return 0;
  });
}

// Memory is allocated only if an operation rounds parameters.
TEST_F(CudaRoundedCopy, TakesNoMemoryInFloat32) {
  on_gpu([] {
    Net net;
    net.x = net.x.to(DType::f32);
    for (int i = 0; i < 3; ++i) net.replica.step(net.loss(), kLr);
    EXPECT_FALSE(net.current());  // this asks for copies
    net.replica.step(net.loss(), kLr);
    EXPECT_TRUE(net.current());
    return 0;
  });
}

TEST_F(CudaRoundedCopy, EveryWriterExpiresTheCopy) {
  const std::vector<std::pair<const char*, std::function<void(Net&, const Tensor&)>>> writers{
      {"copy_from", [](Net&, const Tensor& w) { w.copy_from(values(w.shape(), 9)); }},
      {"copy_from part", [](Net&, const Tensor& w) { w.rows(0, 1).copy_from(values(w.rows(0, 1).shape(), 9)); }},
      {"copy_from the CPU", [](Net&, const Tensor& w) { w.copy_from(values(w.shape(), 9).to(kCpu)); }},
      {"fill", [](Net&, const Tensor& w) { w.fill(3); }},
      {"zero", [](Net&, const Tensor& w) { w.zero(); }},
      {"broadcast", [](Net& net, const Tensor& w) { net.alone.world->broadcast(w, 0, "test"); }},
      {"all_reduce", [](Net& net, const Tensor& w) { net.alone.world->all_reduce(w, Reduce::mean, "test"); }},
      {"all_gather", [](Net& net, const Tensor& w) { net.alone.world->all_gather(w.clone(), w, "test"); }},
      {"reduce_scatter",
       [](Net& net, const Tensor& w) { net.alone.world->reduce_scatter(w.clone(), w, Reduce::sum, "test"); }},
      {"all_to_all", [](Net& net, const Tensor& w) { net.alone.world->all_to_all(w.clone(), w, "test"); }},
      {"ema",
       [](Net& net, const Tensor&) {
         Ema averages(net.replica.buckets(), {}, 0.9);
         averages.swap();
       }},
      {"update_each",
       [](Net&, const Tensor& w) {
         const Tensor other = values(w.shape(), 9);
         on_device(w, [&](auto device) {
           update_each(device, "swap", 0, w.numel(), detail::Swap<float>{}, data_ptr<float>(device, other),
                       data_ptr<float>(device, w));
         });
       }},
      {"parameters_changed", [](Net& net, const Tensor&) { net.replica.parameters_changed(); }},
  };
  on_gpu([&] {
    Net net;
    net.replica.step(net.loss(), kLr);
    for (const auto& [name, write] : writers) {
      net.replica.step(net.loss(), kLr);
      net.replica.finish_checks();
      EXPECT_TRUE(rounded_copy(net.w1.value()).defined()) << name;
      write(net, net.w1.value());
      EXPECT_FALSE(rounded_copy(net.w1.value()).defined()) << name;
    }
    return 0;
  });
}

TEST_F(CudaRoundedCopy, LoadedWeightsAreRoundedAgain) {
  expect_same("adamw", [](Net& net, int64_t step, std::vector<float>& outcome) {
    if (step % 3 == 0) net.w1.value().copy_from(values({32, 16}, static_cast<uint32_t>(100 + step)));
    if (step % 3 == 1) net.b2.value().fill(0.25);
    outcome.push_back(net.evaluate());
  });
}

TEST_F(CudaRoundedCopy, EvaluationReadsTheAveragedWeights) {
  std::unique_ptr<Ema> averages;
  expect_same("birder", [&](Net& net, int64_t step, std::vector<float>& outcome) {
    net.replica.finish_checks();
    if (step == 1) averages = std::make_unique<Ema>(net.replica.buckets(), std::vector<Tensor>(), 0.9);
    for (const Bucket& bucket : net.replica.buckets()) averages->update(bucket, step);
    outcome.push_back(net.evaluate());
    averages->swap();
    outcome.push_back(net.evaluate());
    averages->swap();
    outcome.push_back(net.evaluate());
    EXPECT_TRUE(step == 1 || outcome[outcome.size() - 2] != outcome.back());
    if (step == 8) averages = nullptr;
  });
}

TEST_F(CudaRoundedCopy, ResumesFromACheckpoint) {
  const TempFolder folder;
  int run = 0;
  expect_same("lamb", [&](Net& net, int64_t step, std::vector<float>& outcome) {
    CheckpointExtras extras;
    run += step == 1;
    const std::string path = folder / std::to_string(run);
    if (step == 3) save_checkpoint(path, net.replica, net.alone, extras);
    if (step == 6) load_checkpoint(path, net.replica, net.alone, extras);
    outcome.push_back(net.evaluate());
    EXPECT_TRUE(step != 6 || outcome[2] == outcome[5]);
  });
}

TEST_F(CudaRoundedCopy, SkippedStepsKeepTheCopy) {
  expect_same(
      "adamw",
      [](Net& net, int64_t step, std::vector<float>& outcome) {
        if (step == 3) net.x.fill(INFINITY);
        if (step == 4) net.x.copy_from(values({4, 16}, 5).to(DType::bf16));
        EXPECT_EQ(net.replica.skipped(), step < 4 ? 0 : 1);
        if (step != 3) outcome.push_back(net.evaluate());
      },
      [](DataParallelOptions& options) { options.skip_not_finite = true; });
}

TEST_F(CudaRoundedCopy, ClippingTrainsToTheSameBits) {
  for (const char* name : {"sgdm", "birder"})
    expect_same(name, {}, [](DataParallelOptions& options) { options.clip_norm = 0.01; });
}

TEST_F(CudaRoundedCopy, LocalStepsAreSynchronized) {
  expect_same("zero_one_adam", [](Net& net, int64_t step, std::vector<float>& outcome) {
    if (step % 2 == 0) net.replica.synchronize();
    outcome.push_back(net.evaluate());
  });
}

// A replay reads the memory of the copies, whether or not they are current.
TEST_F(CudaRoundedCopy, ReplaysReadCurrentValues) {
  const auto run = [](bool graphs) {
    Net net("adamw");
    std::vector<float> outcome;
    CudaGraphCache cache;
    for (int64_t step = 1; step <= 8; ++step) {
      if (!graphs) net.replica.parameters_changed();
      net.replica.begin_step(kLr);
      const auto pass = [&] {
        const Var loss = net.loss();
        net.replica.backward(loss);
      };
      if (graphs) cache.run({1}, pass);
      else pass();
      net.replica.finish_step();
      if (step % 3 == 0) net.w1.value().copy_from(values({32, 16}, static_cast<uint32_t>(100 + step)));
      for (const float value : net.parameters()) outcome.push_back(value);
    }
    EXPECT_EQ(cache.captures(), graphs ? 1u : 0u);
    return outcome;
  };
  on_gpu([&] {
    EXPECT_EQ(run(true), run(false));
    return 0;
  });
}

}  // namespace cuda_rounded_copy_test
}  // namespace godwit
