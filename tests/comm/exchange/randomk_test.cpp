#include <cmath>

#include "comm/exchange/random_k.h"
#include "tests/comm/exchange/exchange_harness.h"
#include "tests/support.h"

namespace godwit {
namespace randomk_test {

using test::ExchangePlan;
using test::ExchangeRun;
using test::kRanks;
using test::Values;

ExchangePlan plan_of(const Topology& topology, double density) {
  ExchangePlan plan{.config = RandomKOptions{.density = density}, .topology = topology};
  return plan;
}

// Draws positions until k are distinct, or until all positions to leave out are. Returns 1 for the positions to send.
std::vector<char> places(int64_t begin, int64_t n, int64_t k, int64_t step) {
  const bool left_out = 2 * k > n;
  std::vector<char> sent(static_cast<size_t>(n), left_out);
  const uint64_t threshold = (uint64_t{1} << 32) % static_cast<uint64_t>(n);
  for (int64_t i = 0, missing = left_out ? n - k : k; missing > 0; ++i) {
    const uint64_t word =
        random_word(42, begin + i % n, static_cast<uint32_t>(step), Purpose::coordinates, static_cast<uint32_t>(i / n));
    if ((word * static_cast<uint64_t>(n) & 0xFFFFFFFF) < threshold) continue;
    char& at = sent[word * static_cast<uint64_t>(n) >> 32];
    missing -= at == left_out;
    at = !left_out;
  }
  return sent;
}

void expect_server(const ExchangePlan& plan) {
  const ExchangeRun run = test::run_exchange(plan);
  const int world = plan.topology.world();
  const bool feedback = plan.feedback() == "worker";
  std::vector<Values> e(static_cast<size_t>(world), Values(static_cast<size_t>(plan.d())));
  Values x(static_cast<size_t>(plan.d()));
  const std::vector<Segment> blocks = plan.blocks();
  const double density = plan.config.number("density");
  for (int64_t step = 1; step <= plan.steps; ++step) {
    Values mean(x.size());
    for (const Segment& b : blocks) {
      const int64_t n = b.numel(), k = static_cast<int64_t>(std::ceil(density * static_cast<double>(n)));
      const std::vector<char> chosen = places(b.begin, n, k, step);
      const char* sent = chosen.data();
      float *m = mean.data() + b.begin, *at = x.data() + b.begin;
      for (int rank = 0; rank < world; ++rank) {
        float* own = e[static_cast<size_t>(rank)].data() + b.begin;
        for (int64_t i = 0; i < n; ++i) {
          const float z = test::gradient(rank, step, b.begin + i, at[i]) + (feedback ? own[i] : 0);
          own[i] = sent[i] ? 0 : z;
          if (sent[i]) m[i] = rank == 0 ? z : m[i] + z;
        }
      }
      for (int64_t i = 0; i < n; ++i) {
        m[i] /= static_cast<float>(world);
        if (!feedback) m[i] *= static_cast<float>(n) / static_cast<float>(k);
        at[i] = at[i] - test::kLr * m[i];
      }
    }
    ASSERT_EQ(run.means[static_cast<size_t>(step) - 1], mean) << "step " << step << ", " << world << " ranks";
  }
  for (size_t rank = 0; rank < run.state.size(); ++rank) {
    ASSERT_EQ(run.state[rank].contains("e"), feedback);
    if (feedback) {
      EXPECT_EQ(run.state[rank].at("e"), e[rank]);
    }
  }
}

TEST(RandomK, MatchesTheParameterServer) {
  for (const Topology& topology : kRanks) expect_server(plan_of(topology, 0.1));
  for (const double density : {0.001, 0.5, 0.8, 1.0})
    for (const char* feedback : {"worker", "none"})
      for (const int64_t block_size : {0, 1, 100}) {
        ExchangePlan plan = plan_of({2, 1}, density);
        plan.config.set("error_feedback", feedback).set("block_size", block_size);
        plan.steps = 15;
        expect_server(plan);
      }
}

TEST(RandomK, FewerValuesThanRanks) {
  ExchangePlan plan = plan_of({4, 2}, 0.5);
  plan.shapes = {{1}, {2}};
  expect_server(plan);
}

// An all-reduce of the selected values: density 1 gives the dense all-reduce.
TEST(RandomK, DensityOneGivesTheDenseAllReduceBitForBit) {
  for (const char* feedback : {"worker", "none"}) {
    ExchangePlan plan = plan_of({3, 2}, 1);
    plan.config.set("error_feedback", feedback);
    plan.steps = 5;
    ExchangePlan dense{.topology = {3, 2}, .steps = 5};
    EXPECT_EQ(test::run_exchange(plan).means, test::run_exchange(dense).means);
  }
}

TEST(RandomK, BytesPerRankEqualTheFormula) {
  for (const int world : {1, 2, 4, 8}) {
    ExchangePlan plan = plan_of({world, 1}, 0.1);
    plan.shapes = {{800}};  // 80 values, a multiple of the number of ranks
    plan.steps = 3;
    for (const CommCount& sent : test::run_exchange(plan).sent)
      EXPECT_EQ(sent.bytes_inter, 3 * 2 * (world - 1) * 4 * 80 / world);
  }
}

TEST(RandomK, ResultsDoNotDependOnBucketsOrThreads) {
  ExchangePlan plan = plan_of({2, 2}, 0.3);
  plan.shapes = {{50000}, {64, 3}, {1}, {20000}};
  plan.config.set("block_size", 1000);
  plan.steps = 5;
  const ExchangeRun expected = test::run_exchange(plan);
  plan.bucket_bytes = 1 << 30, plan.threads = 3;
  EXPECT_EQ(test::run_exchange(plan).means, expected.means);
}

// All positions are equally likely. Without feedback the mean is unbiased: over 4000 steps within five standard errors.
TEST(RandomK, PositionsAreUniformAndTheMeanIsUnbiased) {
  constexpr int kSteps = 4000;
  std::vector<double> sum(37), chosen(37);
  run_local({1, 1}, [&](Communicator& comm) {
    Buckets buckets({{"w", Var(Tensor::zeros({37}), true), true}}, {});
    const RandomKOptions options{.density = 0.2, .error_feedback = ErrorFeedback::none};  // 8 of 37
    const auto exchange = make_exchange(options, buckets, comm, 3);
    for (int step = 1; step <= kSteps; ++step) {
      float* g = buckets[0].grad.data<float>();
      for (int i = 0; i < 37; ++i) g[i] = static_cast<float>(i - 18.5);
      exchange->mean(buckets[0], comm, step);
      for (size_t i = 0; i < 37; ++i) {
        sum[i] += g[i];
        chosen[i] += g[i] != 0;
      }
    }
  });
  const double p = 8.0 / 37, error = std::sqrt(p * (1 - p) / kSteps);
  for (size_t i = 0; i < 37; ++i) {
    EXPECT_NEAR(chosen[i] / kSteps, p, 5 * error) << i;
    const double x = static_cast<double>(i) - 18.5;
    EXPECT_NEAR(sum[i] / kSteps, x, 5 * std::abs(x) * error / p) << i;
  }
}

TEST(RandomK, RefusesInvalidInputs) {
  run_local({2, 1}, [](Communicator& comm) {
    Buckets buckets({{"w", Var(Tensor::zeros({6}), true), true}}, {.alignment = 64});
    Buckets wide({{"w", Var(Tensor::zeros({6}, DType::f64), true), true}}, {.alignment = 64});
    for (const double density : {0.0, 1.01, -1.0, static_cast<double>(NAN)}) {
      const RandomKOptions options{.density = density};
      EXPECT_NE(
          error_of([&] { make_exchange(options, buckets, comm, 1); }).find("density expects a finite number in (0, 1]"),
          std::string::npos);
    }
    ExchangeConfig config = "randomk";
    EXPECT_NE(error_of([&] { make_exchange(config, wide, comm, 1); }).find("float64"), std::string::npos);
    const auto exchange = make_exchange(config, buckets, comm, 1);
    exchange->mean(buckets[0], comm, 1);
    buckets[0].grad.data<float>()[3] = INFINITY;
    EXPECT_NE(
        error_of([&] { exchange->mean(buckets[0], comm, 2); }).find("randomk: step 2: the gradient of 'w' is inf"),
        std::string::npos);
  });
}

}  // namespace randomk_test
}  // namespace godwit
