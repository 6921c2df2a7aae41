// LAMB, 1-bit LAMB and Adafactor on ranks that share a GPU. Parameters and all state must match the CPU bit for bit.
#include <gmock/gmock.h>

#include "comm/buckets/sharding.h"
#include "comm/transport/local.h"
#include "optim/adafactor.h"
#include "optim/lamb.h"
#include "optim/one_bit_lamb.h"
#include "tests/gpu_memory.h"

namespace godwit {
namespace cuda_lamb_test {

struct Record {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<std::string> what;  // name of each value
};

void keep(Record& run, std::string what, const Tensor& x) {
  const Tensor here = x.to(kCpu);
  const auto* at = static_cast<const uint8_t*>(here.address());
  run.what.push_back(std::move(what));
  run.bytes.emplace_back(at, at + here.bytes());
}

// Matrices and vectors in several buckets. A short parameter and one of several pieces decay. One gradient is always 0.
Buckets made_buckets(int ranks, DType dtype) {
  std::vector<Parameter> parameters;
  for (const Shape& shape : {Shape{301}, Shape{7, 11}, Shape{5, 3, 3, 41}, Shape{1}, Shape{64, 130}, Shape{1100, 4}, Shape{0}, Shape{30}}) {
    const auto values = random_values<double>(shape.numel(), static_cast<uint32_t>(shape.numel()));
    const bool decays = shape.numel() == 77 || shape.numel() == 8320;
    parameters.push_back(
        {"p" + std::to_string(shape.numel()), Var(Tensor::of(values, shape).to(dtype), true), decays});
  }
  return Buckets(parameters, {1200, 8000, 32 * ranks});
}

struct Plan {
  OptimizerConfig config;
  DType dtype = DType::f32;
  bool sharded = false;
};

Record trained(const Plan& plan, const Placement& placement) {
  constexpr int kRanks = 2;
  std::vector<Record> of_ranks(kRanks);
  const auto body = [&](Communicator& comm) {
    Record& run = of_ranks[static_cast<size_t>(comm.rank)];
    Buckets buckets = made_buckets(kRanks, plan.dtype);
    if (plan.sharded) shard(buckets, comm, 0);
    const bool exchanges = plan.config.method().communicates_itself;
    const auto optimizer = plan.config.method().make(plan.config.options(), {buckets, comm});
    for (int64_t step = 1; step <= 5; ++step) {
      for (Bucket& bucket : buckets) {
        const int rank = exchanges ? comm.rank : 0;
        auto g =
            random_values<double>(bucket.padded_numel(), static_cast<uint32_t>(100 * step + 10 * bucket.index + rank));
        for (int64_t i = 0; i < bucket.padded_numel(); ++i)
          if (i >= bucket.numel || i % 7 == 3) g[static_cast<size_t>(i)] = 0;
        bucket.grad.copy_from(Tensor::of(g, bucket.grad.shape()).to(plan.dtype));
        if (exchanges) optimizer->exchange(bucket, comm, {step, 0.01});
        optimizer->apply(bucket, {step, 0.01});
      }
      for (const Bucket& bucket : buckets)
        keep(run, "step " + std::to_string(step) + ", parameters of bucket " + std::to_string(bucket.index),
             bucket.param);
    }
    for (const StateTensor& part : optimizer->state()) keep(run, "state " + part.name, part.values);
  };
  run_local({kRanks, 1}, body, {.threads_per_rank = 1, .placement = placement});
  Record all;
  for (const Record& run : of_ranks) {
    all.bytes.insert(all.bytes.end(), run.bytes.begin(), run.bytes.end());
    all.what.insert(all.what.end(), run.what.begin(), run.what.end());
  }
  return all;
}

class CudaLamb : public OnGpu {
 protected:
  static void expect_same(Plan plan) {
    SCOPED_TRACE(plan.config.name());
    plan.config.set("weight_decay", 0.1), plan.config.set("decay_norm_and_bias", false);
    const Record here = trained(plan, {}), there = trained(plan, {"cuda:0", false, false});
    ASSERT_EQ(there.what, here.what);
    for (size_t i = 0; i < here.bytes.size(); ++i) ASSERT_EQ(there.bytes[i], here.bytes[i]) << here.what[i];
  }
};

TEST_F(CudaLamb, LambMatchesTheCpuBitForBit) {
  expect_same({Lamb::Options{.bias_correction = true}});
  expect_same({Lamb::Options{.bias_correction = false}, DType::f64});
  expect_same({Lamb::Options{.bias_correction = false}, DType::f32, true});
}

TEST_F(CudaLamb, OneBitLambMatchesTheCpuBitForBit) {
  expect_same({OneBitLamb::Options{.warmup_steps = 2, .block_size = 100}});
}

TEST_F(CudaLamb, AdafactorMatchesTheCpuBitForBit) {
  expect_same({Adafactor::Options{.relative = true}});
  expect_same({Adafactor::Options{.relative = false}, DType::f64});
  expect_same({"adafactor", DType::f32, true});
}

}  // namespace cuda_lamb_test
}  // namespace godwit
