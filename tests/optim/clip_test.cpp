#include "optim/clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "comm/transport/local.h"
#include "engine/philox.h"
#include "optim/data_parallel.h"
#include "tests/autograd/dot.h"
#include "tests/support.h"

namespace godwit {
namespace clip_test {

double gradient(int rank, int64_t step, int64_t parameter, int64_t element) {
  const double unit = to_unit(random_word(5, element, static_cast<uint32_t>(100 * step + parameter), Purpose::test,
                                          static_cast<uint32_t>(rank)));
  return static_cast<float>((unit - 0.4) * (parameter == 1 ? 3 : 0.5));
}

// A loss with the given gradients for all parameters.
Var loss_of(const std::vector<Parameter>& parameters, int rank, int64_t step) {
  std::vector<Var> vars;
  std::vector<Gradient> gradients;
  for (const Parameter& p : parameters) {
    vars.push_back(p.var);
    gradients.push_back(p.var.gradient());
  }
  return Var::result(Tensor::full({1}, 1), vars, [gradients, rank, step](const Tensor& dy) {
    for (size_t p = 0; p < gradients.size(); ++p) {
      const Tensor g = gradients[p].target();
      for (int64_t i = 0; i < g.numel(); ++i)
        g.data<float>()[i] = static_cast<float>(dy.item() * gradient(rank, step, static_cast<int64_t>(p), i));
      gradients[p].add(g);
    }
  });
}

struct Plan {
  std::string optimizer = "sgd", exchange = "dense";
  Topology topology{};
  double clip = 1;
  int64_t bucket_bytes = 1 << 20;
  int threads = 1, micro_batches = 1;
  std::vector<int64_t> sizes{100, 7, 20'000};
  int64_t steps = 3;
};

struct Trained {
  std::vector<std::vector<float>> x;  // per parameter, on rank 0
  std::vector<double> norms;          // per step
  std::vector<uint64_t> hashes;
  std::map<std::string, CommCount> stats;
};

Trained train(const Plan& plan) {
  Trained run;
  std::mutex mutex;
  const auto body = [&](Communicator& comm) {
    std::vector<Parameter> parameters;
    for (size_t i = 0; i < plan.sizes.size(); ++i)
      parameters.push_back({detail::concat("p", i), Var(Tensor::full({plan.sizes[i]}, 0.25), true), true});
    DataParallelOptions options{.optimizer = plan.optimizer, .exchange = plan.exchange};
    options.optimizer.set("lr", 0.5).set("weight_decay", 0);
    options.clip_norm = plan.clip;
    options.buckets = {plan.bucket_bytes, plan.bucket_bytes, 1};
    DataParallel replica(parameters, comm, options);
    comm.stats->reset();
    std::vector<double> norms;
    for (int64_t step = 1; step <= plan.steps; ++step) {
      replica.begin_step(0.5, plan.micro_batches);
      for (int m = 0; m < plan.micro_batches; ++m)
        replica.backward(loss_of(parameters, comm.rank, step * plan.micro_batches + m));
      replica.finish_step();
      norms.push_back(replica.gradient_norm());
    }
    replica.check_replicas();
    std::lock_guard lock(mutex);
    run.hashes.push_back(replica.buckets().value_hash());
    if (comm.rank != 0) return;
    run.norms = norms;
    run.stats = comm.stats->phases();
    for (const Parameter& p : parameters) run.x.push_back(p.var.value().to_vector<float>());
  };
  run_local(plan.topology, body, {.threads_per_rank = plan.threads});
  for (const uint64_t hash : run.hashes) EXPECT_EQ(hash, run.hashes[0]) << "replicas differ";
  return run;
}

// The gradients that SGD should see in one step before clipping, per parameter, in float64.
std::vector<std::vector<double>> mean_gradient(const Plan& plan, int64_t step) {
  std::vector<std::vector<double>> all;
  const int world = plan.topology.world();
  for (size_t p = 0; p < plan.sizes.size(); ++p) {
    all.emplace_back(static_cast<size_t>(plan.sizes[p]));
    for (int64_t i = 0; i < plan.sizes[p]; ++i)
      for (int rank = 0; rank < world; ++rank)
        for (int m = 0; m < plan.micro_batches; ++m)
          all[p][static_cast<size_t>(i)] +=
              gradient(rank, step * plan.micro_batches + m, static_cast<int64_t>(p), i) / world / plan.micro_batches;
  }
  return all;
}

TEST(Clip, MatchesFloat64CodeOnAnyTopology) {
  for (const auto& [nodes, workers] : {std::pair{1, 1}, {2, 1}, {3, 1}, {2, 2}})
    for (const char* exchange : {"dense", "hierarchical"})
      for (const int micro_batches : {1, 3}) {
        Plan plan;
        plan.topology = {nodes, workers};
        plan.exchange = exchange;
        plan.micro_batches = micro_batches;
        const Trained run = train(plan);
        std::vector<std::vector<double>> x;
        for (const int64_t size : plan.sizes) x.emplace_back(static_cast<size_t>(size), 0.25);
        for (int64_t step = 1; step <= plan.steps; ++step) {
          const auto g = mean_gradient(plan, step);
          double squares = 0;
          for (const auto& p : g)
            for (const double value : p) squares += value * value;
          const double norm = std::sqrt(squares);
          // Sums of float32 gradients have a relative error of about 2⁻²⁴.
          EXPECT_NEAR(run.norms[static_cast<size_t>(step - 1)], norm, 1e-6 * norm);
          ASSERT_GT(norm, 1.5) << "the test must clip";
          for (size_t p = 0; p < g.size(); ++p)
            for (size_t i = 0; i < g[p].size(); ++i) x[p][i] -= 0.5 * g[p][i] / (norm + 1e-6);
        }
        for (size_t p = 0; p < x.size(); ++p)
          for (size_t i = 0; i < x[p].size(); ++i) ASSERT_NEAR(run.x[p][i], x[p][i], 1e-6) << exchange << " " << p;
      }
}

// As in PyTorch, the limit is divided by the norm + 1e-6.
TEST(Clip, TinyNormsAreClippedFurther) {
  run_local({1, 1}, [](Communicator& comm) {
    const Var w(Tensor::full({4}, 1), true);
    DataParallelOptions options{.optimizer = "sgd"};
    options.optimizer.set("weight_decay", 0);
    options.clip_norm = 1e-6;
    DataParallel replica({{"w", w}}, comm, options);
    replica.step(test::dot(w, 1e-6), 1e5);  // a norm of 2e-6
    EXPECT_NEAR(w.value().item(), 1 - 0.1 / 3, 1e-6);
  });
}

TEST(Clip, ALimitAboveTheNormChangesNoBit) {
  for (const char* optimizer : {"sgd", "bert_adam", "birder"}) {
    Plan plan;
    plan.optimizer = optimizer;
    plan.topology = {2, 1};
    plan.clip = 0;
    const Trained free = train(plan);
    EXPECT_EQ(free.norms[0], 0);
    plan.clip = 1e6;
    EXPECT_EQ(train(plan).x, free.x) << optimizer;
  }
}

TEST(Clip, BucketSizeAndThreadsDoNotChangeABit) {
  for (const char* optimizer : {"sgd", "birder"}) {
    Plan plan;
    plan.optimizer = optimizer;
    plan.topology = {3, 1};
    plan.sizes = {5, 70'001, 4096, 4097, 1};
    const Trained first = train(plan);
    EXPECT_GT(first.norms[0], 1.5);
    plan.threads = 3;
    for (const int64_t bytes : {4, 100'000}) {
      plan.bucket_bytes = bytes;
      const Trained run = train(plan);
      EXPECT_EQ(run.norms, first.norms) << optimizer;
      EXPECT_EQ(run.x, first.x) << optimizer;
    }
  }
}

// Pitfall 7: all ranks scale by one factor, computed from √(mean of Σg²) and not from each rank's own norm. Birder's
// ratio m/b depends on the factor only through the weight of each step in m and b.
TEST(Clip, Pitfall7BirderScalesAllRanksByOneFactor) {
  Plan plan;
  plan.optimizer = "birder";
  plan.topology = {2, 2};
  const Trained run = train(plan);
  for (int64_t step = 1; step <= plan.steps; ++step) {
    double squares = 0;
    for (size_t p = 0; p < plan.sizes.size(); ++p)
      for (int64_t i = 0; i < plan.sizes[p]; ++i)
        for (int rank = 0; rank < 4; ++rank)
          squares += std::pow(gradient(rank, step, static_cast<int64_t>(p), i), 2) / 4;
    EXPECT_NEAR(run.norms[static_cast<size_t>(step - 1)], std::sqrt(squares), 1e-12 * std::sqrt(squares));
  }
  const CommCount count = run.stats.at("clip/all_gather");
  EXPECT_EQ(count.calls, plan.steps);
}

TEST(Clip, NamesTheStepAndTheNonFiniteParameter) {
  const auto error = [](const char* optimizer, int bad_rank) {
    return error_of([&] {
      run_local({2, 1}, [&](Communicator& comm) {
        const Var w(Tensor::full({5}, 1), true), u(Tensor::full({3}, 1), true);
        DataParallelOptions options{.optimizer = optimizer};
        options.clip_norm = 1;
        DataParallel replica({{"layer.w", w}, {"layer.u", u}}, comm, options);
        for (const float value : {1.0f, comm.rank == bad_rank ? std::numeric_limits<float>::infinity() : 1.0f})
          replica.step(
              Var::result(Tensor::full({1}, 1), {w, u}, [dw = w.gradient(), du = u.gradient(), value](const Tensor&) {
                for (const auto& [gradient, fill] : {std::pair{dw, value}, {du, 1.0f}}) {
                  const Tensor g = gradient.target();
                  g.fill(fill);
                  gradient.add(g);
                }
              }));
      });
    });
  };
  const std::string start = "clip: step 2: the norm of the gradients is inf: the norm of 'layer.w' is not finite";
  for (const int rank : {0, 1}) {
    const std::string sgd = error("sgd", rank), birder = error("birder", rank);
    EXPECT_NE(sgd.find(start + ";"), std::string::npos) << sgd;
    EXPECT_NE(birder.find(start + " on rank " + std::to_string(rank) + ";"), std::string::npos) << birder;
  }
}

TEST(Clip, RefusesInvalidLimits) {
  for (const double limit : {-1.0, static_cast<double>(INFINITY), std::nan("")}) {
    Plan plan;
    plan.clip = limit;
    EXPECT_NE(error_of([&] { train(plan); }).find("clip: the norm must be positive"), std::string::npos);
  }
}

}  // namespace clip_test
}  // namespace godwit
