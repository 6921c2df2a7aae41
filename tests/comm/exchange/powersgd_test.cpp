#include <cmath>

#include "comm/exchange/power_sgd.h"
#include "tests/comm/exchange/exchange_harness.h"
#include "tests/support.h"

namespace godwit {
namespace powersgd_test {

using test::ExchangePlan;
using test::ExchangeRun;
using test::kRanks;
using test::Values;

ExchangePlan plan_of(const Topology& topology, int64_t rank = 2) {
  ExchangePlan plan{.config = PowerSgdOptions{.rank = rank}, .topology = topology};
  plan.shapes = {{20, 30}, {7}, {12, 3, 3, 2}, {1}, {2, 2}, {40, 10}};
  return plan;
}

double dot(const Values& a, const Values& b) {
  std::vector<double> terms(a.size());
  const float *x = a.data(), *y = b.data();
  double* to = terms.data();
  for (size_t i = 0, n = terms.size(); i < n; ++i) to[i] = static_cast<double>(x[i]) * y[i];
  return test::lane_sum(terms);
}

Values mean_of(const std::vector<Values>& ranks) {
  Values mean = ranks[0];
  for (size_t r = 1; r < ranks.size(); ++r)
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += ranks[r][i];
  for (float& x : mean) x /= static_cast<float>(ranks.size());
  return mean;
}

// One matrix of the parameter server: algorithms 1 and 2 of the paper. Uses float32 with sums in the engine's order,
// because a power iteration magnifies rounding if two singular values are close.
struct Matrix {
  size_t begin, rows, cols;
  std::vector<Values> q = {};  // columns
  std::vector<Values> e = {};  // per worker

  Values random_column(size_t k, int64_t step, size_t n) const {
    Values x;
    for (size_t i = 0; i < n; ++i)
      x.push_back(2 * to_unit(random_word(42, static_cast<int64_t>(begin + i), static_cast<uint32_t>(step),
                                          Purpose::coordinates, static_cast<uint32_t>(k))) -
                  1);
    return x;
  }

  // P·Qᵀ
  Values product(const std::vector<Values>& p, const std::vector<Values>& with) const {
    Values x(rows * cols);
    for (size_t k = 0; k < p.size(); ++k) {
      const float *column = p[k].data(), *row = with[k].data();
      float* to = x.data();
      for (size_t i = 0; i < rows; ++i)
        for (size_t j = 0; j < cols; ++j) *to++ += column[i] * row[j];
    }
    return x;
  }

  void orthogonalize(std::vector<Values>& p, int64_t step) const {
    for (size_t k = 0; k < p.size(); ++k) {
      const double before = std::sqrt(dot(p[k], p[k]));
      const auto reduced = [&] {
        for (size_t j = 0; j < k; ++j) {
          const float along = static_cast<float>(dot(p[j], p[k]));
          for (size_t i = 0; i < rows; ++i) p[k][i] -= along * p[j][i];
        }
        return std::sqrt(dot(p[k], p[k]));
      };
      double length = reduced();
      if (!(length > 1e-6 * before)) p[k] = random_column(k, step, rows), length = reduced();
      for (float& x : p[k]) x /= static_cast<float>(length);
    }
  }

  // z: per worker, row-major. Returns the mean.
  Values step(const std::vector<Values>& z, int64_t t) {
    const size_t rank = q.size(), world = z.size();
    std::vector<Values> p(rank), mean_q(rank);
    for (size_t k = 0; k < rank; ++k) {
      std::vector<Values> own(world);
      for (size_t w = 0; w < world; ++w)
        for (size_t i = 0; i < rows; ++i) {
          const auto row = z[w].begin() + static_cast<long>(i * cols);
          own[w].push_back(static_cast<float>(dot({row, row + static_cast<long>(cols)}, q[k])));
        }
      p[k] = mean_of(own);
    }
    orthogonalize(p, t);
    std::vector<std::vector<Values>> own(world, std::vector<Values>(rank, Values(cols)));
    for (size_t w = 0; w < world; ++w) {
      for (size_t k = 0; k < rank; ++k) {
        const float *column = p[k].data(), *from = z[w].data();
        float* to = own[w][k].data();
        for (size_t i = 0; i < rows; ++i)
          for (size_t j = 0; j < cols; ++j) to[j] += column[i] * *from++;
      }
      const Values sent = product(p, own[w]);
      for (size_t i = 0; i < sent.size(); ++i) e[w][i] = z[w][i] - sent[i];
    }
    for (size_t k = 0; k < rank; ++k) {
      std::vector<Values> columns;
      for (size_t w = 0; w < world; ++w) columns.push_back(own[w][k]);
      mean_q[k] = mean_of(columns);
    }
    q = mean_q;
    return product(p, q);
  }
};

void expect_server(const ExchangePlan& plan) {
  SCOPED_TRACE(std::to_string(plan.topology.world()) + " workers, rank " + plan.config.text("rank"));
  const ExchangeRun run = test::run_exchange(plan);
  const size_t world = static_cast<size_t>(plan.topology.world()), d = static_cast<size_t>(plan.d());
  const bool feedback = plan.feedback() == "worker";
  const int64_t rank = plan.config.as<PowerSgdOptions>().rank;
  std::vector<Matrix> matrices;
  const std::vector<Segment> parameters = plan.parameters();
  for (size_t s = 0; s < parameters.size(); ++s) {
    const Shape& shape = plan.shapes[plan.shapes.size() - 1 - s];
    const int64_t rows = shape[0], cols = shape.numel() / rows;
    if (shape.rank() < 2 || rank * (rows + cols) >= shape.numel()) continue;
    Matrix m{static_cast<size_t>(parameters[s].begin), static_cast<size_t>(rows), static_cast<size_t>(cols)};
    for (int64_t k = 0; k < rank; ++k) m.q.push_back(m.random_column(static_cast<size_t>(k), 0, m.cols));
    m.e.assign(world, Values(m.rows * m.cols));
    matrices.push_back(m);
  }
  ASSERT_EQ(matrices.size(), 3u);
  Values x(d);
  for (int64_t step = 1; step <= plan.steps; ++step) {
    std::vector<Values> g(world, Values(d));
    for (size_t w = 0; w < world; ++w) {
      float *to = g[w].data(), *at = x.data();
      for (size_t i = 0; i < d; ++i)
        to[i] = test::gradient(static_cast<int>(w), step, static_cast<int64_t>(i), at[i]);
    }
    Values mean = mean_of(g);
    for (Matrix& m : matrices) {
      std::vector<Values> z;
      for (size_t w = 0; w < world; ++w) {
        const auto begin = g[w].begin() + static_cast<long>(m.begin);
        z.emplace_back(begin, begin + static_cast<long>(m.rows * m.cols));
        for (size_t i = 0; feedback && i < z[w].size(); ++i) z[w][i] += m.e[w][i];
      }
      const Values product = m.step(z, step);
      std::copy(product.begin(), product.end(), mean.begin() + static_cast<long>(m.begin));
    }
    ASSERT_EQ(run.means[static_cast<size_t>(step) - 1], mean) << "step " << step;
    for (size_t i = 0; i < d; ++i) x[i] = x[i] - test::kLr * mean[i];
  }
  for (size_t w = 0; w < world; ++w) {
    EXPECT_EQ(run.state[w].contains("e"), feedback);
    for (const Matrix& m : matrices) {
      for (size_t i = 0; feedback && i < m.rows * m.cols; ++i)
        ASSERT_EQ(run.state[w].at("e")[m.begin + i], m.e[w][i]) << "worker " << w;
      for (size_t k = 0; k < m.q.size(); ++k)
        for (size_t j = 0; j < m.cols; ++j) ASSERT_EQ(run.state[w].at("q")[m.begin + k * m.cols + j], m.q[k][j]);
    }
  }
}

TEST(PowerSgd, MatchesTheParameterServerBitForBit) {
  for (const Topology& topology : kRanks) expect_server(plan_of(topology));
  for (const int64_t rank : {1, 3}) expect_server(plan_of({2, 1}, rank));
  ExchangePlan plan = plan_of({2, 2});
  plan.config.set("error_feedback", "none");
  expect_server(plan);
}

// Gradients of rank one and two are exact, in a step that starts with a random Q.
TEST(PowerSgd, GradientsOfLowRankAreExact) {
  for (const int rank : {1, 2, 3})
    run_local({2, 1}, [&](Communicator& comm) {
      Buckets buckets({{"w", Var(Tensor::zeros({30, 20}), true), true}}, {.alignment = 64});
      const auto exchange = make_exchange(PowerSgdOptions{.rank = 3}, buckets, comm, 1);
      float* g = buckets[0].grad.data<float>();
      std::vector<double> mean(600);
      for (int r = 0; r < 2; ++r)
        for (int i = 0; i < 30; ++i)
          for (int j = 0; j < 20; ++j) {
            float value = 0;
            for (int k = 0; k < rank; ++k)
              value += std::sin(static_cast<float>((k + 1) * i)) * std::cos(static_cast<float>(k * 7 + j + r));
            if (r == comm.rank) g[i * 20 + j] = value;
            mean[static_cast<size_t>(i * 20 + j)] += value / 2.0;
          }
      exchange->mean(buckets[0], comm, 1);
      for (size_t i = 0; i < 600; ++i) EXPECT_NEAR(g[i], mean[i], 1e-5) << rank;
    });
}

// A gradient that is 0 at first, e.g. in an unused layer, must not leave Q at 0 forever.
TEST(PowerSgd, GradientsThatAreInitiallyZeroAreSentLater) {
  run_local({2, 1}, [](Communicator& comm) {
    Buckets buckets({{"w", Var(Tensor::zeros({30, 20}), true), true}}, {.alignment = 64});
    const auto exchange = make_exchange("powersgd", buckets, comm, 1);
    float* g = buckets[0].grad.data<float>();
    for (int step = 1; step <= 3; ++step) {
      std::fill_n(g, 600, 0.0f);
      exchange->mean(buckets[0], comm, step);
      for (int i = 0; i < 600; ++i) ASSERT_EQ(g[i], 0);
    }
    // The error of a step is sent in the next steps.
    double sum = 0, given = 0;
    for (int step = 4; step <= 6; ++step) {
      for (int i = 0; i < 600; ++i) given += g[i] = static_cast<float>(i / 20 + 1);
      exchange->mean(buckets[0], comm, step);
      for (int i = 0; i < 600; ++i) sum += g[i];
    }
    EXPECT_NEAR(sum, given, 0.01 * given);
  });
}

TEST(PowerSgd, BytesPerRankEqualTheFormula) {
  for (const int world : {1, 2, 4}) {
    ExchangePlan plan = plan_of({world, 1});
    plan.shapes = {{20, 32}, {8}, {16, 3, 3, 4}};
    plan.bucket_bytes = 1 << 20;
    plan.steps = 3;
    const int64_t first = 2 * (20 + 16) + 8, second = 2 * (32 + 36);  // multiples of the number of ranks
    for (const CommCount& sent : test::run_exchange(plan).sent)
      EXPECT_EQ(sent.bytes_inter, 3 * 2 * (world - 1) * 4 * (first + second) / world);
  }
}

TEST(PowerSgd, ResultsDoNotDependOnBucketsOrThreads) {
  ExchangePlan plan = plan_of({2, 2});
  plan.shapes = {{300, 200}, {64, 3}, {1}, {50, 400}};
  plan.steps = 5;
  const ExchangeRun expected = test::run_exchange(plan);
  plan.bucket_bytes = 1 << 30, plan.threads = 3;
  EXPECT_EQ(test::run_exchange(plan).means, expected.means);
}

TEST(PowerSgd, FewerValuesThanRanks) {
  ExchangePlan plan = plan_of({4, 2});
  plan.shapes = {{2, 1}, {1}};
  plan.steps = 5;
  ExchangePlan dense = plan;
  dense.config = "dense";
  EXPECT_EQ(test::run_exchange(plan).means, test::run_exchange(dense).means) << "too small to be factorized";
}

TEST(PowerSgd, ReportsThatNothingWasCompressed) {
  const auto summary = [](int64_t rank) {
    std::string text;
    run_local({2, 1}, [&](Communicator& comm) {
      Buckets buckets({{"w", Var(Tensor::zeros({8, 9}), true)}}, {.alignment = 64});
      const std::string own = make_exchange(PowerSgdOptions{.rank = rank}, buckets, comm, 1)->summary(*comm.world);
      if (comm.rank == 0) text = own;
    });
    return text;
  };
  EXPECT_EQ(summary(4), "");
  EXPECT_NE(summary(int64_t{1} << 62), "") << "17 times this rank is more than an int64";
  EXPECT_NE(summary(5).find("no parameter is smaller as two factors of rank 5"), std::string::npos);
}

// Rank 1 has the only matrix.
TEST(PowerSgd, ReportsForAllRanks) {
  run_local({2, 1}, [](Communicator& comm) {
    const Shape shape = comm.rank == 1 ? Shape{30, 40} : Shape{8};
    Buckets buckets({{"w", Var(Tensor::zeros(shape), true)}}, {.alignment = 64});
    EXPECT_EQ(make_exchange(PowerSgdOptions{}, buckets, comm, 1)->summary(*comm.world), "");
  });
}

TEST(PowerSgd, RefusesInvalidInputs) {
  run_local({2, 1}, [](Communicator& comm) {
    Buckets buckets({{"w", Var(Tensor::zeros({60, 50}), true), true}}, {.alignment = 64});
    Buckets wide({{"w", Var(Tensor::zeros({6}, DType::f64), true), true}}, {.alignment = 64});
    ExchangeConfig config = "powersgd";
    EXPECT_NE(error_of([&] { make_exchange(config, wide, comm, 1); }).find("float64"), std::string::npos);
    for (const int64_t rank : {0, -1}) {
      EXPECT_NE(error_of([&] { make_exchange(PowerSgdOptions{.rank = rank}, buckets, comm, 1); }).find("at least 1"),
                std::string::npos);
    }
    config.set("rank", 1);
    const auto exchange = make_exchange(config, buckets, comm, 1);
    buckets[0].grad.data<float>()[51] = NAN;
    EXPECT_NE(error_of([&] {
                exchange->mean(buckets[0], comm, 2);
              }).find("powersgd: step 2: the gradient of 'w' is nan at element 51"),
              std::string::npos);
    Buckets plain({{"b", Var(Tensor::zeros({6}), true), true}}, {.alignment = 64});  // is sent uncompressed
    const auto uncompressed = make_exchange(config, plain, comm, 1);
    plain[0].grad.data<float>()[3] = NAN;
    EXPECT_NE(error_of([&] { uncompressed->mean(plain[0], comm, 2); }).find("the gradient of 'b' is nan at element 3"),
              std::string::npos);
  });
}

}  // namespace powersgd_test
}  // namespace godwit
