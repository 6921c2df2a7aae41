#include "optim/ema.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/context.h"
#include "engine/philox.h"
#include "tests/support.h"

namespace godwit {
namespace ema_test {

float value_at(int64_t step, int64_t element) {
  return to_unit(random_word(3, element, static_cast<uint32_t>(step), Purpose::test, 0)) - 0.5f;
}

// Two parameters of 1000 and 37 elements take random values. Returns the averaged values after `steps`.
struct Weights {
  Var a{Tensor({1000}), true}, b{Tensor({37}), true};
  Tensor buffer{{5}};
  Buckets buckets;

  explicit Weights(int64_t bytes)
      : buckets((a.value().fill(0.5), b.value().fill(0.5), std::vector<Parameter>{{"a", a}, {"b", b}}),
                {.first_bytes = bytes, .bytes = bytes}) {
    buffer.fill(0.5);
  }
  void move(int64_t step) {
    for (Bucket& bucket : buckets)
      for (int64_t i = 0; i < bucket.numel; ++i) bucket.param.data<float>()[i] = value_at(step, bucket.begin + i);
    buffer.fill(value_at(step, 0));
  }
  std::vector<float> values() const {
    std::vector<float> all = a.value().to_vector<float>();
    for (const float x : b.value().span<float>()) all.push_back(x);
    for (const float x : buffer.span<float>()) all.push_back(x);
    return all;
  }
};

std::vector<float> averages(int64_t bytes, int threads, int64_t steps, double decay, bool reverse) {
  Weights run(bytes);
  ContextGuard guard(Context{0, threads, true, std::make_shared<Pool>()});
  Ema ema(run.buckets, {run.buffer}, decay);
  for (int64_t step = 1; step <= steps; ++step) {
    run.move(step);
    for (int64_t i = 0; i < run.buckets.size(); ++i)
      ema.update(run.buckets[reverse ? run.buckets.size() - 1 - i : i], step);
    ema.update_buffers(step);
  }
  ema.swap();
  return run.values();
}

TEST(Ema, FollowsTheFormula) {
  for (const double decay : {0.0, 0.4, 0.99}) {
    const std::vector<float> found = averages(1 << 20, 1, 40, decay, false);
    ASSERT_EQ(found.size(), 1042u);
    for (int64_t i = 0; i < 1042; ++i) {
      // Elements are numbered from the last parameter; the buffer uses the values of element 0.
      const int64_t element = i < 1000 ? 37 + i : i < 1037 ? i - 1000 : 0;
      double a = 0.5;
      for (int64_t t = 1; t <= 40; ++t) {
        const double d = std::min(decay, (1.0 + static_cast<double>(t)) / (10.0 + static_cast<double>(t)));
        a = d * a + (1 - d) * value_at(t, element);
      }
      // Values are below 0.5. Forty roundings to float32 of 3e-8 each decay like the average.
      ASSERT_NEAR(found[static_cast<size_t>(i)], a, decay == 0 ? 1e-7 : 1e-6) << "element " << element;
    }
  }
}

TEST(Ema, SameBitsForAnyBucketSizeOrderAndThreadCount) {
  const std::vector<float> first = averages(1 << 20, 1, 10, 0.9, false);
  EXPECT_EQ(averages(64, 1, 10, 0.9, false), first);
  EXPECT_EQ(averages(64, 3, 10, 0.9, true), first);
}

// 0/1 Adam synchronizes replicas only after some steps. The averages of step 4 are loaded by another object.
TEST(Ema, AnUpdateAfterSeveralStepsHasTheirWeight) {
  Weights run(400);
  Ema before(run.buckets, {}, 0.99), after(run.buckets, {}, 0.99);
  double a = 0.5;
  int64_t last = 0;
  for (const int64_t t : {1, 2, 4, 4, 8, 16}) {
    run.move(t);
    Ema& ema = t > 4 ? after : before;
    for (const Bucket& bucket : run.buckets) ema.update(bucket, t);
    const double d = (1.0 + static_cast<double>(t)) / (10.0 + static_cast<double>(t));
    const double kept = std::pow(d, static_cast<double>(t - std::exchange(last, t)));
    a = kept * a + (1 - kept) * value_at(t, 37);
    EXPECT_NEAR(ema.state().back().values.item(0), a, 1e-6) << "element 37, step " << t;
    if (t > 4) continue;
    for (size_t i = 0; i < before.state().size(); ++i) after.state()[i].values.copy_from(before.state()[i].values);
    after.continue_after(t);
  }
}

TEST(Ema, SwappingTwiceRestoresTheOriginalState) {
  Weights run(400);
  Ema ema(run.buckets, {run.buffer}, 0.5);
  run.move(1);
  for (const Bucket& bucket : run.buckets) ema.update(bucket, 1);
  ema.update_buffers(1);
  const std::vector<float> values = run.values();
  ema.swap();
  const std::vector<float> averaged = run.values();
  EXPECT_NE(averaged, values);
  ema.swap();
  EXPECT_EQ(run.values(), values);
  ema.swap();
  EXPECT_EQ(run.values(), averaged);
}

TEST(Ema, RefusesWrongArguments) {
  Weights run(400);
  EXPECT_NE(error_of([&] { Ema(run.buckets, {}, 1.0); }).find("below 1"), std::string::npos);
  EXPECT_THROW(Ema(run.buckets, {}, -0.1), Error);
  EXPECT_THROW(Ema(run.buckets, {}, NAN), Error);
  EXPECT_THROW(Ema(run.buckets, {Tensor({2}, DType::i32)}, 0.5), Error);
  Ema ema(run.buckets, {}, 0.5);
  EXPECT_THROW(ema.update(run.buckets[0], 0), Error);
  Weights other(1 << 20);
  EXPECT_THROW(ema.update(other.buckets[0], 1), Error);
}

}  // namespace ema_test
}  // namespace godwit
