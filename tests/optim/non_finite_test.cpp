// A gradient that is not finite on one rank: all ranks fail, or skip the step together before any state has moved.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "comm/finite.h"
#include "comm/local.h"
#include "engine/hash.h"
#include "engine/philox.h"
#include "optim/data_parallel.h"
#include "tests/support.h"

namespace godwit {
namespace {

constexpr int kRanks = 4;
constexpr double kBad[] = {static_cast<double>(NAN), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)};

struct Plan {
  std::string optimizer = "sgd", exchange = "dense";
  std::vector<int> gradients{};  // number of each step's; 0: that of step 1 with one bad value
  double bad = 0;
  bool skip = true;
  double clip = 0;
  int64_t bucket_bytes = 512;
};

// What a rank has at the end, by name; equal when every bit is.
using Remains = std::map<std::string, uint64_t>;

struct Outcome {
  std::vector<Remains> ranks{kRanks};
  std::vector<int64_t> steps = std::vector<int64_t>(kRanks), skipped = steps;
  std::vector<std::string> reasons = std::vector<std::string>(kRanks);
  std::vector<int64_t> agreement_bytes = steps;
};

Var loss_of(const std::vector<Parameter>& parameters, int rank, int gradient, double bad) {
  std::vector<Var> vars;
  std::vector<Gradient> gradients;
  for (const Parameter& p : parameters) {
    vars.push_back(p.var);
    gradients.push_back(p.var.gradient());
  }
  return Var::result(Tensor::full({1}, 1), vars, [=](const Tensor&) {
    for (size_t p = 0; p < gradients.size(); ++p) {
      const Tensor g = gradients[p].target();
      const auto step = static_cast<uint32_t>(16 * std::max(gradient, 1) + static_cast<int>(p));
      for (int64_t i = 0; i < g.numel(); ++i)
        g.data<float>()[i] =
            1e-4f * (to_unit(random_word(9, i, step, Purpose::test, static_cast<uint32_t>(rank))) - 0.4f);
      if (gradient == 0 && rank == 2 && p == 1) g.data<float>()[5] = static_cast<float>(bad);
      gradients[p].add(g);
    }
  });
}

void add(Remains& remains, const std::string& owner, const std::vector<StatePart>& parts) {
  for (const StatePart& part : parts) {
    Hash hash;
    hash.add(part.values, part.values.numel());
    remains[detail::concat(owner, " ", part.name, " from ", part.begin)] = hash.value();
  }
}

Outcome train(const Plan& plan) {
  Outcome outcome;
  run_local({2, 2}, [&](Communicator& comm) {
    std::vector<Parameter> parameters;
    for (const int64_t size : {40, 700, 64, 256})
      parameters.push_back({"p" + std::to_string(parameters.size()), Var(Tensor::full({size}, 0.25), true)});
    DataParallelOptions options{.optimizer = optimizer_defaults(plan.optimizer),
                                .exchange = exchange_defaults(plan.exchange)};
    options.buckets = {plan.bucket_bytes, plan.bucket_bytes, 1};
    options.skip_not_finite = plan.skip;
    options.clip_norm = plan.clip;
    Remains remains;
    options.updated = [&](const Bucket&, const StepInfo& step) { remains["last update"] = static_cast<uint64_t>(step.step); };
    DataParallel replica(parameters, comm, options);
    for (const int gradient : plan.gradients) {
      replica.begin_step(1e-3);
      replica.backward(loss_of(parameters, comm.rank, gradient, plan.bad));
      EXPECT_EQ(replica.finish_step(), gradient > 0);
    }
    replica.check_replicas();
    remains["parameters"] = replica.buckets().value_hash();
    add(remains, "optimizer", replica.optimizer().state());
    add(remains, "exchange", replica.optimizer().exchange_state());
    const size_t rank = static_cast<size_t>(comm.rank);
    outcome.ranks[rank] = remains;
    outcome.steps[rank] = replica.steps();
    outcome.skipped[rank] = replica.skipped();
    outcome.reasons[rank] = replica.skip_reason();
    const CommCount agreed = comm.stats->phase("non_finite/all_gather");
    outcome.agreement_bytes[rank] = agreed.bytes_intra + agreed.bytes_inter;
  });
  return outcome;
}

template <class F>
void for_each_method(F f) {
  for (const std::string& optimizer : optimizer_names())
    for (const std::string& exchange : exchange_names()) {
      if (communicates_itself(optimizer) && exchange != "dense") continue;  // it takes none
      SCOPED_TRACE(optimizer + " behind " + exchange);
      f(Plan{.optimizer = optimizer, .exchange = exchange});
    }
}

// Pitfall 11: an overflow on one rank skips the step everywhere and moves nothing: not the parameters, nor moments,
// errors, draws of random numbers, step counters or what is called after an update.
TEST(NonFinite, Pitfall11SkippedStepsLeaveNoTrace) {
  for_each_method([](Plan plan) {
    plan.gradients = {1, 2, 3};
    const Outcome clean = train(plan);
    plan.skip = false;
    EXPECT_EQ(train(plan).ranks, clean.ranks) << "waiting for all gradients changes no bit";
    plan.skip = true;
    plan.gradients = {0, 1, 2, 0, 0, 3, 0};
    for (const double bad : kBad) {
      plan.bad = bad;
      const Outcome run = train(plan);
      EXPECT_EQ(run.ranks, clean.ranks) << bad;
      EXPECT_EQ(run.steps, clean.steps);
      EXPECT_EQ(run.skipped, std::vector<int64_t>(kRanks, 4));
      EXPECT_EQ(run.agreement_bytes, std::vector<int64_t>(kRanks, 7 * 8 * (kRanks - 1))) << "8 bytes to each, each step";
      for (const std::string& reason : run.reasons)
        EXPECT_EQ(reason, "the gradient of 'p1' at element 5 is not finite on rank 2");
    }
  });
}

TEST(NonFinite, SkippedStepsLeaveNoTraceWithClipping) {
  for (const char* optimizer : {"adamw", "birder"}) {
    Plan plan{.optimizer = optimizer, .gradients = {1, 2}, .clip = 1e-5};
    const Outcome clean = train(plan);
    plan.gradients = {1, 0, 2}, plan.bad = NAN;
    EXPECT_EQ(train(plan).ranks, clean.ranks) << optimizer;
  }
}

// Pitfall 26: nothing turns such a value into a legal bit or level; the error names step and parameter, on any rank.
TEST(NonFinite, Pitfall26EveryMethodFailsNamingTheParameter) {
  for_each_method([](Plan plan) {
    plan.skip = false;
    plan.gradients = {1, 0};
    for (const double bad : kBad) {
      plan.bad = bad;
      const std::string error = error_of([&] { train(plan); });
      EXPECT_NE(error.find("step 2: the gradient of 'p1' is "), std::string::npos) << error;
    }
  });
}

TEST(NonFinite, FindsTheFirstOne) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t n : {1, 7, 64, 200'001}) {
      const Tensor x = Tensor::full({n}, dtype == DType::f32 ? 3.4e38 : 1.7e308, dtype);
      const auto set = [&](int64_t i, double value) {
        dispatch_real(dtype, "test", [&]<class T>() { x.data<T>()[i] = static_cast<T>(value); });
      };
      EXPECT_EQ(first_not_finite(x, n), n);
      EXPECT_EQ(first_not_finite(x, 0), 0);
      for (const double bad : kBad)
        for (const int64_t i : {n - 1, n / 2, int64_t{0}}) {
          set(i, bad);
          EXPECT_EQ(first_not_finite(x, n), i);
          EXPECT_EQ(first_not_finite(x, i), i) << "what is behind is not looked at";
          set(i, -1e-310);
        }
    }
}

}  // namespace
}  // namespace godwit
