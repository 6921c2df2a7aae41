// A non-finite gradient on one rank. All ranks must fail, or skip the step before any state has changed.
#include "comm/buckets/finite.h"
#include "tests/optim/methods.h"
#include "tests/support.h"

namespace godwit {
namespace non_finite_test {

using test::for_each_part;
using test::MethodOutcome;
using test::MethodPlan;
using test::train_by;

constexpr int kRanks = 4;
constexpr double kBad[] = {static_cast<double>(NAN), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)};

// Pitfall 11: an overflow on one rank skips the step on all ranks and changes nothing: parameters, moments, errors,
// random counters and step counters stay, and the update callbacks are not called.
TEST(NonFinite, Pitfall11SkippedStepsLeaveNoTrace) {
  for_each_part([](MethodPlan plan) {
    const MethodOutcome clean = train_by(plan);
    plan.skip = true;
    EXPECT_TRUE(train_by(plan).same(clean)) << "waiting for all gradients must not change a bit";
    plan.gradients = {0, 1, 2, 0, 0, 3, 0};
    for (const double bad : kBad) {
      plan.bad = bad;
      const MethodOutcome run = train_by(plan);
      EXPECT_TRUE(run.same(clean)) << bad;
      EXPECT_EQ(run.skipped, std::vector<int64_t>(kRanks, 4));
      EXPECT_EQ(run.agreement_bytes, std::vector<int64_t>(kRanks, 7 * 8 * (kRanks - 1)))
          << "8 bytes to each rank per step";
      for (const std::string& reason : run.reasons)
        EXPECT_EQ(reason, "the gradient of 'p1' at element 5 is not finite on rank 2");
    }
  });
}

TEST(NonFinite, SkippedStepsLeaveNoTraceWithClipping) {
  for (const char* optimizer : {"adamw", "birder"}) {
    MethodPlan plan{.optimizer = optimizer, .skip = true, .clip = 1e-5};
    const MethodOutcome clean = train_by(plan);
    plan.gradients = {1, 0, 2, 3}, plan.bad = static_cast<double>(NAN);
    EXPECT_TRUE(train_by(plan).same(clean)) << optimizer;
  }
}

TEST(NonFinite, SkippedStepsLeaveNoTraceWithSharding) {
  for (const char* sharding : {"zero1", "zero2"})
    for (const char* wire : {"f32", "bf16"})
      for (const double clip : {0.0, 1e-5}) {
        MethodPlan plan{.optimizer = "adamw", .sharding = sharding, .parameter_wire = wire, .skip = true, .clip = clip};
        const MethodOutcome clean = train_by(plan);
        plan.gradients = {0, 1, 2, 0, 3}, plan.bad = static_cast<double>(INFINITY);
        EXPECT_TRUE(train_by(plan).same(clean)) << sharding << " " << wire << " " << clip;
      }
}

// Pitfall 26: a non-finite value is never turned into a valid sign or level. The error names step and parameter, on any
// rank.
TEST(NonFinite, Pitfall26EveryMethodFailsNamingTheParameter) {
  for_each_part([](MethodPlan plan) {
    plan.gradients = {1, 0};
    for (const double bad : kBad) {
      plan.bad = bad;
      const std::string error = error_of([&] { train_by(plan); });
      EXPECT_NE(error.find("step 2: the gradient of 'p1' is "), std::string::npos) << error;
    }
  });
}

TEST(NonFinite, FindsTheFirstNonFiniteValue) {
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
          EXPECT_EQ(first_not_finite(x, i), i) << "values after the range are not checked";
          set(i, -1e-310);
        }
    }
}

}  // namespace non_finite_test
}  // namespace godwit
