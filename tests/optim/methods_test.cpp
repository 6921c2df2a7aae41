// Properties of every method. Covers pitfalls that no optimizer or exchange may have.
#include <algorithm>
#include <mutex>

#include "tests/optim/methods.h"
#include "tests/support.h"

namespace godwit {
namespace methods_test {

using test::for_each_method;
using test::for_each_part;
using test::MethodOutcome;
using test::MethodPlan;
using test::set_if_known;
using test::train_by;

// Pitfall 1: ranks have different gradients, yet parameters and shared state have equal bits on all ranks after every
// step. A single different bit is found, and the error names its rank.
TEST(Methods, Pitfall1ReplicasStayEqual) {
  for_each_method([](MethodPlan plan) {
    plan.after_step = [](DataParallel& replica, Communicator&) {
      replica.synchronize();  // after a local step
      replica.check_replicas();
    };
    train_by(plan);
  });
  MethodPlan plan{.optimizer = "adamw"};
  plan.after_step = [](DataParallel& replica, Communicator& comm) {
    if (comm.rank == 3 && replica.steps() == 2) *static_cast<uint32_t*>(replica.buckets()[1].param.raw()) ^= 1;
    replica.check_replicas();
  };
  const std::string error = error_of([&] { train_by(plan); });
  EXPECT_NE(error.find("ranks disagree on the parameter 'p2' (bucket 1) after step 2: rank 3 differs"),
            std::string::npos)
      << error;
}

// Pitfall 6: decoupled weight decay acts on the parameters only. Averages, messages and error feedback have the same
// bits with and without weight decay (gradients here do not depend on the parameters).
TEST(Methods, Pitfall6WeightDecayStaysOutsideTheCompressedValue) {
  for (const char* optimizer : {"adamw", "bert_adam", "softsignsgd", "birder", "one_bit_adam"})
    for (const std::string& exchange : method_names<ExchangeMethod>()) {
      if (OptimizerConfig(optimizer).method().communicates_itself && exchange != "dense") continue;
      SCOPED_TRACE(optimizer + (" behind " + exchange));
      MethodPlan plan{.optimizer = optimizer, .exchange = exchange};
      plan.weight_decay = 0;
      const MethodOutcome without = train_by(plan);
      plan.weight_decay = 0.5;
      const MethodOutcome with = train_by(plan);
      EXPECT_TRUE(with.same_state(without));
      EXPECT_NE(with.parameters, without.parameters);
    }
}

// Pitfall 9: errors have the unit of the compressed value, not of the update, so they do not depend on the learning
// rate.
TEST(Methods, Pitfall9ErrorsDoNotDependOnTheLearningRate) {
  for (const std::string& exchange : method_names<ExchangeMethod>()) {
    MethodPlan plan{.optimizer = "sgd", .exchange = exchange};
    const MethodOutcome slow = train_by(plan);
    plan.lr = 0.5;
    EXPECT_TRUE(train_by(plan).same_state(slow)) << exchange;
  }
  MethodPlan plan{.optimizer = "birder"};
  const MethodOutcome slow = train_by(plan);
  plan.lr = 0.5;
  EXPECT_TRUE(train_by(plan).same_state(slow));
}

// Pitfall 10: only the accumulated gradient is exchanged and compressed. Two micro-batches with half the gradient each
// (an exact sum) give the same bits as one, with the same number of calls.
TEST(Methods, Pitfall10OnlyTheAccumulatedGradientIsCompressed) {
  for_each_part([](MethodPlan plan) {
    const MethodOutcome whole = train_by(plan);
    plan.micro_batches = 2;
    const MethodOutcome parts = train_by(plan);
    EXPECT_TRUE(parts.same(whole));
    EXPECT_EQ(parts.calls, whole.calls);
  });
}

// Pitfall 15: random numbers are independent across ranks and steps, so the rounding errors of a gradient that all
// ranks share average out. The mean squared error of four ranks is a quarter of that of one (dense messages, exact
// means), and the errors of two steps are uncorrelated.
TEST(Methods, Pitfall15RoundingAveragesOutOverRanksAndSteps) {
  constexpr int64_t kValues = 1 << 14;
  for (const char* name : {"qsgd", "terngrad"}) {
    const auto errors_of = [&](int ranks, int64_t step) {
      std::vector<double> errors(kValues);
      run_local({ranks, 1}, [&](Communicator& comm) {
        Buckets buckets({{"x", Var(Tensor::zeros({kValues}), true)}}, {.alignment = int64_t{32} * ranks});
        ExchangeConfig config = name;
        set_if_known(config, "clip_sigma", 0);
        const auto exchange = make_exchange(config, buckets, comm, 7);
        std::vector<float> g(kValues);
        for (int64_t i = 0; i < kValues; ++i)
          g[static_cast<size_t>(i)] = to_unit(random_word(4, i, 0, Purpose::test, 0)) - 0.5f;
        std::copy(g.begin(), g.end(), buckets[0].grad.data<float>());
        exchange->mean(buckets[0], comm, step);
        for (size_t i = 0; comm.rank == 0 && i < g.size(); ++i)
          errors[i] = static_cast<double>(buckets[0].grad.data<float>()[i] - g[i]);
      });
      return errors;
    };
    const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
      double sum = 0;
      for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
      return sum / static_cast<double>(a.size());
    };
    const auto one = errors_of(1, 1), later = errors_of(1, 2), four = errors_of(4, 1);
    EXPECT_NEAR(dot(four, four) / dot(one, one), 0.25, 0.02) << name;
    EXPECT_NEAR(dot(one, later) / dot(one, one), 0, 4 / std::sqrt(static_cast<double>(kValues))) << name;
  }
}

// Pitfall 19: server errors are keyed by global offset, independently of buckets and shards. Every value has exactly
// one server error, with the same bits in any layout.
TEST(Methods, Pitfall19ServerErrorsAreKeyedByGlobalOffset) {
  int64_t methods = 0;
  for_each_part([&](MethodPlan plan) {
    const auto errors_of = [&](const Topology& topology, int64_t bucket_bytes) {
      std::mutex mutex;
      std::map<int64_t, double> errors;
      plan.topology = topology, plan.bucket_bytes = bucket_bytes;
      plan.after_step = [&](DataParallel& replica, Communicator&) {
        if (replica.steps() < 3) return;
        std::lock_guard lock(mutex);
        for (const auto& parts : {replica.optimizer().state(), replica.optimizer().exchange_state()})
          for (const StateTensor& part : parts)
            for (int64_t i = 0; part.name == "server_e" && i < part.values.numel(); ++i)
              EXPECT_TRUE(errors.emplace(part.begin + i, part.values.item(i)).second) << "one value has two owners";
      };
      train_by(plan);
      return errors;
    };
    const std::map<int64_t, double> errors = errors_of({2, 2}, 512);
    if (errors.empty()) return;
    ++methods;
    EXPECT_EQ(errors.size(), 1060u);
    EXPECT_GT(std::ranges::count_if(errors, [](const auto& e) { return e.second != 0; }), 200);
    EXPECT_EQ(errors_of({2, 2}, 2000), errors);
    EXPECT_EQ(errors_of({4, 1}, 1 << 20).size(), 1060u) << "with another sharding";
  });
  EXPECT_GE(methods, 6) << "birder, one_bit_*, zero_one_adam; one_bit_sgd, ef_signsgd";
}

// Pitfall 29: a weight with two names has one gradient, the sum. The gradient is compressed and fed back once.
TEST(Methods, Pitfall29TiedWeightsAreOneParameter) {
  for_each_part([](MethodPlan plan) {
    const MethodOutcome single = train_by(plan);
    plan.tied = true;
    const MethodOutcome tied = train_by(plan);
    EXPECT_TRUE(tied.same(single));
    EXPECT_EQ(tied.calls, single.calls);
  });
}

// Pitfall 30: the number of calls depends on the buckets, not on their parameters.
TEST(Methods, Pitfall30OneRoundOfCallsPerBucket) {
  for_each_part([](MethodPlan plan) {
    plan.bucket_bytes = 1 << 20;
    plan.sizes = std::vector<int64_t>(30, 40);
    const MethodOutcome many = train_by(plan);
    plan.sizes = {1200};
    EXPECT_EQ(train_by(plan).calls, many.calls);
  });
}

// Pitfall 33: with owners, a worker sends (W−1)/W of its data, instead of (W−1) times its data when messages go to all
// ranks. Eight workers send 7/4 of what two send; with messages to all they would send 7 times as much.
TEST(Methods, Pitfall33BytesOfAWorkerDoNotGrowWithTheWorkers) {
  for_each_part([](MethodPlan plan) {
    const auto bytes_with = [&](int workers, const char* reply) {
      plan.topology = {workers, 1};
      plan.sizes = {1 << 15};
      plan.bucket_bytes = 1 << 20;
      plan.gradients = {1, 1};
      plan.change = [=](DataParallelOptions& options) {
        ExchangeConfig& exchange = options.exchange;
        set_if_known(exchange, "block_size", 256);
        if (exchange.has("reply") && exchange.text("reply") == "none") exchange.set("reply", reply);
        set_if_known(options.optimizer, "block_size", 256);
      };
      int64_t sent = 0;
      plan.after_step = [&](DataParallel&, Communicator& comm) {
        if (comm.rank == 0) sent = comm.stats->total().bytes_inter;
      };
      train_by(plan);
      return static_cast<double>(sent);
    };
    EXPECT_LT(bytes_with(8, "f32") / bytes_with(2, "f32"), 1.9);
    if (plan.exchange != "topk") return;
    EXPECT_GT(bytes_with(8, "none") / bytes_with(2, "none"), 6) << "the bound above detects it";
  });
}

// Pitfall 37: the first step updates the parameters like any other step.
TEST(Methods, Pitfall37TheFirstStepUpdatesTheParameters) {
  for_each_part([](MethodPlan plan) {
    plan.weight_decay = 0;
    const MethodOutcome run = train_by(plan);
    EXPECT_NE(run.x[1], run.x[0]);
  });
}

// Pitfall 38: ε is added where each paper adds it, outside or inside the root. One first step along g from x = 1/4,
// without decay.
TEST(Methods, Pitfall38EpsilonIsAddedWhereThePaperAddsIt) {
  constexpr double kG = 0.05, kEps = 0.01;
  const double m = 0.1 * kG, v = 1e-3 * kG * kG;  // after one step with β 0.9 and 0.999
  const std::map<std::string, double> steps{{"adam", kG / (kG + kEps)},
                                            {"adamw", kG / (kG + kEps)},
                                            {"bert_adam", m / (std::sqrt(v) + kEps)},
                                            {"one_bit_adam", kG / (kG + kEps)},
                                            {"one_bit_lamb", kG / (kG + kEps)},
                                            {"lamb", kG / (kG + kEps)},
                                            {"zero_one_adam", m / std::sqrt(kG * kG + kEps)},
                                            {"adafactor", kG / std::sqrt(kG * kG + kEps)},
                                            {"softsignsgd", 0.05 * kG / (0.05 * kG + kEps)}};
  for (const auto& [name, expected] : steps)
    run_local({1, 1}, [&, &name = name, &expected = expected](Communicator& comm) {
      const Var x(Tensor::full({1}, 0.25), true);
      DataParallelOptions options{.optimizer = name};
      OptimizerConfig& config = options.optimizer;
      config.set("weight_decay", 0).set("eps", kEps);
      set_if_known(config, "relative", false);
      for (const char* option : {"warmup_steps", "max_interval"}) set_if_known(config, option, 1);
      for (const char* option : {"min_coeff", "max_coeff"}) set_if_known(config, option, 1);  // bounds of LAMB's ratio
      DataParallel replica({{"x", x}}, comm, options);
      replica.step(Var::result(Tensor::full({1}, 0), {x},
                               [dx = x.gradient()](const Tensor&) {
                                 dx.target().fill(kG);
                                 dx.add(dx.target());
                               }),
                   1);
      EXPECT_NEAR(0.25 - x.value().item(), expected, 1e-6) << name;
    });
}

}  // namespace methods_test
}  // namespace godwit
