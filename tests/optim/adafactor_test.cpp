#include "optim/adafactor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/optim/sharding_harness.h"
#include "tests/support.h"

namespace godwit {
namespace adafactor_test {

using namespace godwit::test;

// Algorithms 4 (matrices) and 5 (vectors) of the paper, in float64, applied to the mean gradient over the ranks.
std::vector<std::vector<double>> reference(const ShardPlan& plan) {
  const auto& o = plan.optimizer.as<Adafactor::Options>();
  std::vector<double> x;
  std::vector<std::pair<int64_t, int64_t>> matrices;  // rows and columns in order of global offset; rows < 1: a vector
  for (size_t p = plan.shapes.size(); p-- > 0;) {
    const Shape& shape = plan.shapes[p];
    matrices.emplace_back(shape.rank() >= 2 ? shape[0] : 0,
                          shape.rank() >= 2 ? shape.numel() / shape[0] : shape.numel());
    int64_t before = 0;
    for (size_t q = 0; q < p; ++q) before += plan.shapes[q].numel();
    for (int64_t i = 0; i < shape.numel(); ++i) x.push_back(start_value(before + i));
  }
  std::vector<double> row(x.size()), column(x.size());  // per element: means of its row and column; for vectors: v
  std::vector<std::vector<double>> steps;
  for (int64_t t = 1; t <= plan.steps; ++t) {
    const double beta2 = 1 - std::pow(static_cast<double>(t), -o.decay_exponent);
    size_t begin = 0;
    for (const auto& [rows, columns] : matrices) {
      const size_t n = static_cast<size_t>(std::max<int64_t>(rows, 1) * columns), width = static_cast<size_t>(columns);
      std::vector<double> g(n), row_sum(n), column_sum(n), u(n);
      for (size_t i = 0; i < n; ++i) {
        const int64_t e = static_cast<int64_t>(begin + i);
        for (int rank = 0; rank < plan.topology.world(); ++rank) g[i] += plan.gradient(rank, t, e, x[begin + i]);
        g[i] /= plan.topology.world();
        row_sum[i / width] += g[i] * g[i] + o.eps;
        column_sum[i % width] += g[i] * g[i] + o.eps;
      }
      double mean = 0, squares = 0, size = 0;
      for (size_t i = 0; i < n; ++i) {
        double& r = row[begin + i];
        double& c = column[begin + i];
        r = beta2 * r + (1 - beta2) * row_sum[i / width] / static_cast<double>(columns);
        c = beta2 * c + (1 - beta2) * column_sum[i % width] / static_cast<double>(std::max<int64_t>(rows, 1));
        mean += r / static_cast<double>(n);
      }
      for (size_t i = 0; i < n; ++i) {
        u[i] = g[i] / std::sqrt(rows == 0 ? column[begin + i] : row[begin + i] * column[begin + i] / mean);
        squares += u[i] * u[i] / static_cast<double>(n);
        size += x[begin + i] * x[begin + i] / static_cast<double>(n);
      }
      const double alpha = o.lr * (o.relative ? std::max(1e-3, std::sqrt(size)) : 1);
      for (size_t i = 0; i < n; ++i) {
        x[begin + i] *= 1 - o.lr * o.weight_decay;
        x[begin + i] -= alpha * u[i] / std::max(1.0, std::sqrt(squares) / o.clip_update);
      }
      begin += n;
    }
    steps.push_back(x);
  }
  return steps;
}

ShardPlan adafactor_plan() {
  ShardPlan plan{.optimizer = "adafactor", .shapes = {{100}, {1}, {8, 9}, {5, 3, 3, 4}, {41, 7}, {3}}};
  plan.optimizer.set("weight_decay", 0.01);
  plan.optimizer.set("lr", 0.05);
  plan.steps = 200;
  return plan;
}

TEST(Adafactor, FollowsTheFormulasOfThePaper) {
  for (const bool relative : {true, false})
    for (const DType dtype : {DType::f64, DType::f32}) {
      ShardPlan plan = adafactor_plan();
      plan.optimizer.set("relative", relative);
      plan.dtype = dtype;
      const std::vector<std::vector<double>> expected = reference(plan), x = train_sharded(plan).x;
      for (size_t t = 0; t < x.size(); ++t)
        for (size_t i = 0; i < x[t].size(); ++i)
          ASSERT_NEAR(x[t][i], expected[t][i], dtype == DType::f64 ? 1e-9 : 2e-3 * (1 + std::abs(expected[t][i])))
              << "step " << t + 1 << ", element " << i << ", " << dtype;
    }
}

// A parameter that begins at 0, such as a bias, moves with the smallest relative size 1e-3.
TEST(Adafactor, MovesParametersThatAre0) {
  run_local({1, 1}, [](Communicator& comm) {
    Buckets buckets({{"bias", Var(Tensor::zeros({7}), true)}}, {});
    const auto optimizer = make_optimizer("adafactor", {buckets, comm, 1, make_exchange("dense", buckets, comm, 1)});
    buckets[0].grad.range(0, 7).fill(-0.3);
    optimizer->apply(buckets[0], {1, 0.5});
    for (int64_t i = 0; i < 7; ++i) EXPECT_NEAR(buckets[0].param.item(i), 0.5 * 1e-3, 1e-9) << "u = -1";
  });
}

TEST(Adafactor, DoesNotDependOnBucketSizeThreadsOrSharding) {
  ShardPlan plan = adafactor_plan();
  plan.shapes.push_back({300, 200});
  plan.steps = 10;
  const ShardRun reference = train_sharded(plan);
  plan.bucket_bytes = 1 << 20;
  plan.threads = 3;
  EXPECT_EQ(train_sharded(plan).x, reference.x);
  for (const char* sharding : {"zero1", "zero2"}) {
    plan.exchange = sharded("dense", sharding);
    EXPECT_EQ(train_sharded(plan).x, reference.x) << sharding;
  }
}

TEST(Adafactor, KeepsRowsAndColumnsOnOneRank) {
  ShardPlan plan = adafactor_plan();
  plan.steps = 1;
  plan.exchange = sharded("loco", "zero2", "bf16");
  const ShardRun run = train_sharded(plan);
  int64_t all = 0;
  for (const int64_t values : run.state_values) all += values;
  EXPECT_EQ(all, 100 + 1 + (8 + 9) + (5 + 36) + (41 + 7) + 3);
  EXPECT_NE(error_of([] {
              run_local({2, 1}, [](Communicator& comm) {
                Buckets buckets({{"w", Var(Tensor::zeros({10, 10}), true)}}, {.alignment = 64});
                shard(buckets, comm, std::nullopt);
                make_optimizer("adafactor", {buckets, comm, 1, make_exchange("dense", buckets, comm, 1)});
              });
            }).find("the shards cut parameter 'w'"),
            std::string::npos);
}

}  // namespace adafactor_test
}  // namespace godwit
