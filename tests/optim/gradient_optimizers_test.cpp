// SGD(M), Adam(W) and SoftSignSGD, compared with short float64 code, PyTorch, and the papers' experiments.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "optim/adam.h"
#include "optim/sgd.h"
#include "optim/softsign.h"
#include "tests/optim/harness.h"

namespace godwit {
namespace gradient_optimizers_test {

using test::Plan;
using test::Trained;

const std::vector<std::string> kMethods{"sgd", "sgdm", "nesterov", "adam", "adamw", "bert_adam", "softsignsgd"};

OptimizerConfig method(const std::string& name) {
  OptimizerConfig config = name == "nesterov" ? Sgdm::Options{.nesterov = true} : OptimizerConfig(name);
  return config.set("lr", name == "sgd" ? 0.1 : 0.01).set("weight_decay", 0.05);
}

// Options of all methods; 0 if a method does not have the option.
struct Settings {
  explicit Settings(const OptimizerConfig& config) : name(config.name()) {
    const auto read = [&](const char* option, double& value) {
      if (config.has(option)) value = config.number(option);
    };
    read("lr", lr), read("weight_decay", weight_decay), read("momentum", momentum), read("beta", beta);
    read("beta1", beta1), read("beta2", beta2), read("eps", eps);
    nesterov = config.has("nesterov") && config.text("nesterov") == "true";
  }
  std::string name;
  double lr = 0, weight_decay = 0, momentum = 0, beta = 0, beta1 = 0, beta2 = 0, eps = 0;
  bool nesterov = false;
};

// One value in float64, with the formulas of the papers.
struct Value {
  double x, m = 0, v = 0;

  void step(const Settings& c, double g, double t) {
    if (c.name == "sgd") {
      x -= c.lr * (g + c.weight_decay * x);
    } else if (c.name == "sgdm") {
      g += c.weight_decay * x;
      m = c.momentum * m + g;
      x -= c.lr * (c.nesterov ? g + c.momentum * m : m);
    } else if (c.name == "softsignsgd") {
      m = c.beta * m + (1 - c.beta) * g;
      v = c.beta * v + (1 - c.beta) * std::abs(g);
      x = (1 - c.lr * c.weight_decay) * x - c.lr * m / (v + c.eps);
    } else {
      if (c.name == "adam") g += c.weight_decay * x;
      else x -= c.lr * c.weight_decay * x;
      m = c.beta1 * m + (1 - c.beta1) * g;
      v = c.beta2 * v + (1 - c.beta2) * g * g;
      if (c.name == "bert_adam") x -= c.lr * m / (std::sqrt(v) + c.eps);
      else x -= c.lr * (m / (1 - std::pow(c.beta1, t))) / (std::sqrt(v / (1 - std::pow(c.beta2, t))) + c.eps);
    }
  }
};

std::vector<std::vector<double>> expected(const Plan& plan) {
  std::vector<std::vector<double>> all;
  std::vector<Value> values;
  const Settings settings(plan.config);
  for (int64_t j = 0; j < plan.d(); ++j) values.push_back({test::start_value(j)});
  for (int64_t t = 1; t <= plan.steps; ++t) {
    all.emplace_back();
    for (int64_t j = 0; j < plan.d(); ++j) {
      Value& value = values[static_cast<size_t>(j)];
      double g = 0;
      for (int rank = 0; rank < plan.topology.world(); ++rank) g += plan.gradient(rank, t, j, value.x);
      value.step(settings, g / plan.topology.world(), static_cast<double>(t));
      all.back().push_back(value.x);
    }
  }
  return all;
}

// Computed in float64, so the gradients add no rounding error.
double smooth_gradient(int rank, int64_t step, int64_t element, double x) {
  const double j = static_cast<double>(element);
  if (element % 11 == 3) return 0;
  return (element % 5 == 0 ? 1e-4 : 1.0) *
         (0.1 * (x - 0.1 * rank) + std::sin(0.7 * static_cast<double>(step) + j + 2.0 * rank));
}

double largest_difference(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    EXPECT_EQ(a[t].size(), b[t].size());
    for (size_t j = 0; j < a[t].size(); ++j) {
      const double difference = std::abs(a[t][j] - b[t][j]);
      largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
    }
  }
  return largest;
}

// x stays below 2, so a step rounds x by at most 2⁻²⁴ in float32 and 2⁻⁵³ in float64; 100 steps add up to 6e-6 and
// 1e-14. Rounding of the state adds a few times that, scaled by lr ≤ 0.1.
double tolerance(DType dtype) { return dtype == DType::f64 ? 3e-14 : 1e-5; }

TEST(GradientOptimizers, MatchFloat64CodeFor100Steps) {
  for (const std::string& name : kMethods) {
    for (const DType dtype : {DType::f64, DType::f32}) {
      Plan plan;
      plan.config = method(name);
      plan.dtype = dtype;
      plan.steps = 100;
      plan.gradient = smooth_gradient;
      EXPECT_LE(largest_difference(test::train(plan).x, expected(plan)), tolerance(dtype)) << name << " " << dtype;
    }
  }
}

TEST(GradientOptimizers, UseTheMeanOverSeveralRanks) {
  for (const std::string& name : kMethods) {
    for (const char* exchange : {"dense", "hierarchical"}) {
      for (const auto& [nodes, workers] : {std::pair{3, 1}, {2, 2}}) {
        Plan plan;
        plan.config = method(name);
        plan.topology = {nodes, workers};
        plan.exchange = exchange;
        plan.dtype = DType::f64;
        plan.steps = 100;
        plan.gradient = smooth_gradient;
        const Trained run = test::train(plan);
        EXPECT_LE(largest_difference(run.x, expected(plan)), tolerance(plan.dtype)) << name << " " << exchange;
      }
    }
  }
}

// Pitfall 8: the divisor is the number of ranks at every level. SGD with lr 1 exposes the mean, bit for bit if sums are
// exact.
TEST(GradientOptimizers, Pitfall8TheMeanIsOverAllRanks) {
  for (const char* exchange : {"dense", "hierarchical"}) {
    for (const auto& [nodes, workers] : {std::pair{1, 1}, {1, 4}, {4, 1}, {2, 4}, {8, 2}}) {
      Plan plan;
      plan.config = method("sgd");
      plan.config.set("lr", 1).set("weight_decay", 0);
      plan.topology = {nodes, workers};
      plan.exchange = exchange;
      plan.steps = 1;
      plan.gradient = [](int rank, int64_t, int64_t element, double) {
        return rank * 64 + static_cast<double>(element % 64);
      };
      const Trained run = test::train(plan);
      for (int64_t j = 0; j < plan.d(); ++j) {
        const float mean = static_cast<float>(32.0 * (plan.topology.world() - 1) + static_cast<double>(j % 64));
        EXPECT_EQ(run.x[0][static_cast<size_t>(j)], static_cast<float>(test::start_value(j)) - mean);
      }
    }
  }
}

TEST(GradientOptimizers, BucketsThreadsAndInstructionSetsDoNotChangeABit) {
  for (const std::string& name : kMethods) {
    Plan plan;
    plan.config = method(name);
    plan.config.set("decay_norm_and_bias", false);
    plan.sizes = {70'001, 5, 33, 999};
    plan.decay = {true, false, true, false};
    plan.steps = 3;
    plan.bucket_bytes = 1 << 30;
    hwy::SetSupportedTargetsForTest(hwy::SupportedAndGeneratedTargets().back());  // the portable code
    const Trained first = test::train(plan);
    hwy::SetSupportedTargetsForTest(0);
    plan.threads = 3;
    for (const int64_t bytes : {4, 1 << 30}) {
      plan.bucket_bytes = bytes;
      const Trained run = test::train(plan);
      EXPECT_EQ(run.x, first.x) << name;
      EXPECT_EQ(run.state, first.state) << name;
    }
  }
}

TEST(GradientOptimizers, WeightDecayFollowsTheDecayFlags) {
  for (const std::string& name : kMethods) {
    Plan plan;
    plan.config = method(name);
    plan.config.set("decay_norm_and_bias", false);
    plan.sizes = {10, 5};
    plan.decay = {true, false};
    plan.dtype = DType::f64;
    const Trained run = test::train(plan);
    Plan decayed = plan, undecayed = plan;
    undecayed.config.set("weight_decay", 0);
    const auto with = expected(decayed).back(), without = expected(undecayed).back();
    for (size_t j = 0; j < 15; ++j) {  // bucket order: the five undecayed elements come first
      EXPECT_NEAR(run.x.back()[j], j < 5 ? without[j] : with[j], 1e-12) << name << " " << j;
    }
  }
}

TEST(GradientOptimizers, MatchPyTorch) {
  std::ifstream file(GODWIT_SOURCE_DIR "/tests/optim/golden/pytorch.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden.size(), 5u);
  for (const auto& [name, run] : golden.items()) {
    const OptimizerConfig config(run.at("optimizer"), run.at("settings").dump());
    const double lr = config.number("lr");
    run_local({1, 1}, [&, &golden_x = run.at("x")](Communicator& comm) {
      Buckets buckets({{"x", Var(Tensor::zeros({37}, DType::f64), true)}}, {});
      const auto x = buckets[0].param.span<double>(), g = buckets[0].grad.span<double>();
      for (size_t j = 0; j < 37; ++j) x[j] = 0.05 * static_cast<double>(j % 5) - 0.1;
      const auto optimizer = make_optimizer(config, {buckets, comm, 0, make_exchange("dense", buckets, comm, 1)});
      for (int64_t t = 1; t <= 100; ++t) {
        for (size_t j = 0; j < 37; ++j) {
          g[j] = 0.1 * static_cast<double>(1 + j % 3) * (x[j] - (0.5 - 0.1 * static_cast<double>(j % 7))) +
                 0.3 * std::sin(0.7 * static_cast<double>(t) + static_cast<double>(j));
        }
        optimizer->exchange(buckets[0], comm, {t, lr});
        optimizer->apply(buckets[0], {t, lr});
        if (!golden_x.contains(std::to_string(t))) continue;
        const std::vector<double> theirs = golden_x.at(std::to_string(t));
        // Both compute in float64 and differ by a few roundings of values near 1.
        for (size_t j = 0; j < 37; ++j) EXPECT_NEAR(x[j], theirs[j], 1e-13) << name << " step " << t;
      }
    });
  }
}

// x after each step of a one-parameter problem on one rank.
std::vector<double> descend(const OptimizerConfig& config, double x0, int64_t steps,
                            const std::function<double(int64_t, double)>& gradient) {
  std::vector<double> path;
  const double lr = config.number("lr");
  run_local({1, 1}, [&](Communicator& comm) {
    Buckets buckets({{"x", Var(Tensor::full({1}, x0, DType::f64), true)}}, {});
    const auto optimizer = make_optimizer(config, {buckets, comm, 0, make_exchange("dense", buckets, comm, 1)});
    for (int64_t t = 1; t <= steps; ++t) {
      buckets[0].grad.data<double>()[0] = gradient(t, buckets[0].param.item());
      optimizer->apply(buckets[0], {t, lr});
      path.push_back(buckets[0].param.item());
    }
  });
  return path;
}

// BinSGDM paper, figure 8: f(x) = x²/2 from 1 with lr 0.5. SoftSignSGD settles near the optimum; Adam diverges in
// repeated bursts.
TEST(GradientOptimizers, Figure8SoftSignSettlesWhereAdamOscillates) {
  const auto largest = [](const OptimizerConfig& config, size_t from, size_t to) {
    const auto path = descend(config, 1, 5000, [](int64_t, double x) { return x; });
    double result = 0;
    for (size_t t = from; t < to; ++t) result = std::max(result, std::abs(path[t]));
    return result;
  };
  const OptimizerConfig soft = SoftSignSgd::Options{.lr = 0.5, .weight_decay = 0};
  const OptimizerConfig adam = Adam::Options{.lr = 0.5, .beta2 = 0.99};
  EXPECT_LE(largest(soft, 1000, 5000), 0.02);
  EXPECT_GE(largest(soft, 1000, 5000), 0.005) << "a limit cycle near 0.0123";
  EXPECT_GE(largest(adam, 1000, 5000), 0.03);
}

// ε sets the smallest effective gradient. It also sets how long a parameter keeps moving after its gradient becomes 0
// (m/b does not decay): ln(b/ε)/ln(1/β) steps.
TEST(GradientOptimizers, Pitfall4SoftSignEpsilon) {
  const SoftSignSgd::Options config{.lr = 1, .weight_decay = 0};
  for (const auto& [g, ratio] : {std::pair{1.0, 1.0}, {1e-7, 1 / 1.1}, {1e-8, 0.5}, {0.0, 0.0}}) {
    const auto path = descend(config, 0, 400, [g = g](int64_t, double) { return g; });
    EXPECT_NEAR(path[398] - path[399], ratio, 1e-7) << "b is within β⁴⁰⁰ ≈ 1e−9 of |g|; gradient " << g;
  }
  const auto touched = descend(config, 0, 500, [](int64_t t, double) { return t == 1 ? 0.2 : 0; });
  EXPECT_NEAR(touched[0], -1, 1e-5) << "the first nonzero gradient gives a full step";
  size_t coasted = 1;
  while (coasted < touched.size() && touched[coasted - 1] - touched[coasted] > 0.5) ++coasted;
  EXPECT_NEAR(static_cast<double>(coasted), 1 + std::log(0.05 * 0.2 / config.eps) / std::log(1 / config.beta), 1);
}

}  // namespace gradient_optimizers_test
}  // namespace godwit
