// Trains flat parameters with gradients from a function, on ranks that are threads. Collects values and state.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "comm/exchange/method.h"
#include "comm/transport/local.h"
#include "engine/context.h"
#include "engine/philox.h"
#include "optim/method.h"

namespace godwit::test {

// The gradient of global element `element` on `rank`. Elements are in bucket order: the last parameter comes first.
using GradientOf = std::function<double(int rank, int64_t step, int64_t element, double x)>;

// A noisy quadratic with a different minimum and noise per rank and element, with float32 operations only. Some
// elements never have a gradient; some have a tiny gradient.
inline double noisy_gradient(int rank, int64_t step, int64_t element, double x) {
  if (element % 11 == 3) return 0;
  const auto draw = [&](uint32_t s, int r) {
    return to_unit(random_word(77, element, s, Purpose::test, static_cast<uint32_t>(r)));
  };
  const float scale = element % 5 == 0 ? 1e-5f : 1.0f;
  const float target = draw(0, rank), noise = draw(static_cast<uint32_t>(step), rank) - 0.5f;
  return scale * (0.1f * (static_cast<float>(x) - target) + noise);
}

struct Plan {
  OptimizerConfig config = "sgd";
  Topology topology{};
  std::vector<int64_t> sizes{100, 1, 64, 152};
  std::vector<bool> decay{};  // per size; empty: all parameters decay
  int64_t steps = 30;
  int64_t bucket_bytes = 400;
  int threads = 1;
  uint64_t seed = 42;
  std::string exchange = "dense";
  DType dtype = DType::f32;
  GradientOf gradient = noisy_gradient;

  int64_t d() const {
    int64_t sum = 0;
    for (const int64_t size : sizes) sum += size;
    return sum;
  }
};

struct Trained {
  std::vector<std::vector<double>> x;  // values of rank 0 after each step, by global element
  // State by name and owner. For "m", "b", "b_hat" and "e" of Birder, the owner is the sender, otherwise 0. Elements
  // without an owner are NaN.
  std::map<std::pair<std::string, int>, std::vector<double>> state;
  std::vector<uint64_t> hashes;                         // hash of each rank's final parameters
  std::vector<std::map<std::string, CommCount>> stats;  // per rank
  int64_t padded = 0, buckets = 0;
};

inline double start_value(int64_t element) {
  return static_cast<float>(0.01 * static_cast<double>(element % 13) - 0.05);
}

inline Trained train(const Plan& plan) {
  Trained run;
  std::mutex mutex;
  const int world = plan.topology.world();
  run.hashes.resize(static_cast<size_t>(world));
  run.stats.resize(static_cast<size_t>(world));
  const auto body = [&](Communicator& comm) {
    std::vector<Parameter> parameters;
    for (size_t i = 0; i < plan.sizes.size(); ++i) {
      const Tensor value = Tensor::zeros({plan.sizes[i]}, plan.dtype);
      parameters.push_back({"p" + std::to_string(i), Var(value, true), plan.decay.empty() || plan.decay[i]});
    }
    Buckets buckets(parameters, {plan.bucket_bytes, plan.bucket_bytes, int64_t{32} * world});
    const auto each = [&](const Tensor& values, int64_t begin, int64_t numel, const auto& f) {
      dispatch_real(plan.dtype, "test", [&]<class T>() {
        for (int64_t i = 0; i < numel; ++i) f(values.data<T>()[i], begin + i);
      });
    };
    for (Bucket& b : buckets)
      each(b.param, b.begin, b.numel, [](auto& x, int64_t e) { x = static_cast<float>(start_value(e)); });
    const bool own = plan.config.method().communicates_itself;
    auto optimizer = make_optimizer(
        plan.config, {buckets, comm, plan.seed, own ? nullptr : make_exchange(plan.exchange, buckets, comm, 1)});
    comm.stats->reset();
    for (int64_t step = 1; step <= plan.steps; ++step) {
      const StepInfo info{step, plan.config.number("lr")};
      std::vector<double> x(static_cast<size_t>(plan.d()));
      for (Bucket& b : buckets) {
        each(b.param, b.begin, b.numel, [&](auto& value, int64_t e) { x[static_cast<size_t>(e)] = value; });
        each(b.grad, b.begin, b.numel, [&](auto& g, int64_t e) {
          g = static_cast<std::remove_reference_t<decltype(g)>>(
              plan.gradient(comm.rank, step, e, x[static_cast<size_t>(e)]));
        });
      }
      for (Bucket& b : buckets) optimizer->exchange(b, comm, info);
      for (Bucket& b : buckets) {
        optimizer->apply(b, info);
        each(b.param, b.begin, b.numel, [&](auto& value, int64_t e) { x[static_cast<size_t>(e)] = value; });
        for (int64_t i = b.numel; i < b.padded_numel(); ++i) EXPECT_EQ(b.param.item(i), 0) << "padding must stay zero";
      }
      if (comm.rank == 0) run.x.push_back(x);
    }
    std::lock_guard lock(mutex);
    run.hashes[static_cast<size_t>(comm.rank)] = buckets.value_hash();
    run.stats[static_cast<size_t>(comm.rank)] = comm.stats->phases();
    run.padded = 0, run.buckets = buckets.size();
    for (const Bucket& b : buckets) run.padded += b.padded_numel();
    for (const StateTensor& s : optimizer->state()) {
      const bool shared = !own || s.name == "server_e" || s.name == "active";
      const bool naive = plan.config.has("collective") && plan.config.text("collective") == "all_gather";
      const int sender = shared ? 0 : naive ? comm.rank : comm.node();
      auto& values = run.state[{s.name, sender}];
      values.resize(static_cast<size_t>(plan.d()), NAN);
      const bool bits = s.values.dtype() == DType::u32;
      const int64_t all = bits ? std::min(32 * s.values.numel(), plan.d() - s.begin) : s.values.numel();
      for (int64_t i = 0; i < all; ++i) {
        const auto word = static_cast<uint32_t>(bits ? s.values.item(i / 32) : 0);
        values.at(static_cast<size_t>(s.begin + i)) =
            bits                             ? (word >> (i % 32)) & 1
            : s.values.dtype() == DType::u8 ? static_cast<int8_t>(s.values.item(i)) / 64.0
                                             : s.values.item(i);
      }
    }
  };
  run_local(plan.topology, body, {.threads_per_rank = plan.threads});
  for (const uint64_t hash : run.hashes) EXPECT_EQ(hash, run.hashes[0]) << "replicas differ";
  return run;
}

}  // namespace godwit::test
