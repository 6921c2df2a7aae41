#include "comm/exchange/loco.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "comm/buckets/sharding.h"
#include "comm/compress/wire/loco_codes.h"
#include "tests/comm/exchange/exchange_harness.h"
#include "tests/comm/table.h"
#include "tests/every_target.h"
#include "tests/support.h"

namespace godwit {
namespace loco_test {

using namespace godwit::test;

struct LocoRun {
  std::vector<Values> means;  // per step, by global element
  std::vector<std::vector<int8_t>> errors;  // per rank
  std::string summary;
};

ExchangePlan loco_plan(const std::string& scale = "auto", int64_t bits = 4) {
  ExchangePlan plan;
  plan.config = LocoOptions{.bits = bits, .scale = scale, .block_size = 50, .reset_every = 8};
  return plan;
}

using GradientOf = std::function<float(int rank, int64_t step, int64_t element, float x)>;

LocoRun run_loco(const ExchangePlan& plan, const GradientOf& gradient_of = gradient) {
  LocoRun run;
  std::mutex mutex;
  const size_t d = static_cast<size_t>(plan.d());
  run.errors.resize(static_cast<size_t>(plan.topology.world()));
  run.means.assign(static_cast<size_t>(plan.steps), Values(d));
  const auto body = [&](Communicator& comm) {
    std::vector<Parameter> parameters;
    for (size_t i = 0; i < plan.shapes.size(); ++i)
      parameters.push_back({"p" + std::to_string(i), Var(Tensor::zeros(plan.shapes[i]), true), true});
    Buckets buckets(parameters, {plan.bucket_bytes, plan.bucket_bytes, int64_t{32} * plan.topology.world()});
    if (plan.config.sharding != Sharding::none) shard(buckets, comm, std::nullopt);
    const std::unique_ptr<Exchange> exchange = make_exchange(plan.config, buckets, comm, plan.seed);
    for (int64_t step = 1; step <= plan.steps; ++step) {
      for (Bucket& bucket : buckets) {
        float *x = bucket.param.data<float>(), *g = bucket.grad.data<float>();
        const int64_t n = bucket.numel, begin = bucket.begin;
        for (int64_t i = 0; i < n; ++i) g[i] = gradient_of(comm.rank, step, begin + i, x[i]);
      }
      for (Bucket& bucket : buckets) {
        exchange->mean(bucket, comm, step);
        const Segment owned = plan.config.sharding == Sharding::zero2 ? bucket.owned : Segment{0, bucket.numel};
        float *x = bucket.param.data<float>(), *g = bucket.grad.data<float>();
        for (int64_t i = owned.begin; i < owned.end; ++i) x[i] = x[i] - kLr * g[i];
        if (bucket.shards.empty() ? comm.rank == 0 : true) {
          std::lock_guard lock(mutex);
          float* mean = run.means[static_cast<size_t>(step - 1)].data() + bucket.begin;
          std::copy(g + owned.begin, g + owned.end, mean + owned.begin);
        }
        if (plan.config.sharding == Sharding::zero2) all_gather_shards(bucket, bucket.param, *comm.world, "test");
      }
    }
    check_identical(*comm.compute, buckets.value_hash(), "the parameters");
    std::vector<int8_t>& errors = run.errors[static_cast<size_t>(comm.rank)];
    errors.resize(d);
    for (const StateTensor& part : exchange->state())
      if (part.name == "e")
        std::memcpy(errors.data() + part.begin, part.values.data<uint8_t>(), static_cast<size_t>(part.values.numel()));
    const std::string summary = exchange->summary(*comm.world);
    if (comm.rank == 0) run.summary = summary;
  };
  run_local(plan.topology, body, {.threads_per_rank = plan.threads});
  return run;
}

float up_to_bf16(double m) {
  float rounded{bf16(static_cast<float>(m))};
  if (rounded < static_cast<float>(m)) rounded = std::bit_cast<float>(std::bit_cast<uint32_t>(rounded) + 0x10000u);
  return rounded;
}

// Algorithm 1 of the LoCo paper as a parameter server, line by line.
LocoRun simulate(const ExchangePlan& plan) {
  const LocoOptions& c = plan.config.as<LocoOptions>();
  const size_t d = static_cast<size_t>(plan.d());
  const int world = plan.topology.world();
  const float low = -std::ldexp(1.0f, static_cast<int>(c.bits) - 1), high = -low - 1;
  const float gain = static_cast<float>(c.error_gain_new), ratio = static_cast<float>(c.error_scale);
  const float clip = c.clip_element > 0 ? static_cast<float>(c.clip_element) : INFINITY;
  const bool automatic = c.scale == "auto";
  LocoRun run;
  run.errors.assign(static_cast<size_t>(world), std::vector<int8_t>(d));
  Values x(d);
  const float unknown = c.bits == 1 ? INFINITY : 1;  // before the first gradient
  std::vector<float> s(d, automatic ? unknown : std::exp2(std::stof(c.scale.substr(2)))), s_before;
  const std::vector<Segment> blocks = plan.blocks();
  const bool random = c.error_rounding == LocoOptions::Rounding::random;
  // Pointers instead of operator[], which is a call in the builds of the tests.
  float *values = x.data(), *scale = s.data();
  for (int64_t t = 1; t <= plan.steps; ++t) {
    std::vector<Values> gradients(static_cast<size_t>(world), Values(d));
    for (int r = 0; r < world; ++r) {
      float* g = gradients[static_cast<size_t>(r)].data();
      for (size_t i = 0; i < d; ++i) g[i] = gradient(r, t, static_cast<int64_t>(i), values[i]);
    }
    s_before = s;
    for (const Segment& block : blocks) {
      float most = 0;
      for (const Values& own : gradients) {
        double size = 0;
        std::vector<double> sizes(static_cast<size_t>(block.numel()));
        const float* g = own.data() + block.begin;
        double* terms = sizes.data();
        for (int64_t i = 0, n = block.numel(); i < n; ++i) {
          terms[i] = std::abs(g[i]);
          if (terms[i] > size) size = terms[i];
        }
        if (c.bits == 1) size = lane_sum(sizes) / static_cast<double>(sizes.size());
        most = std::max(most, up_to_bf16(std::min(size, static_cast<double>(clip))));
      }
      for (int64_t i = block.begin; automatic && most > 0 && i < block.end; ++i)
        scale[i] = c.bits == 1 ? 1 / (2 * most) : high / most;
    }
    Values mean(d), sums(d);
    float *sum = sums.data(), *m = mean.data();
    const float* before = s_before.data();
    for (int r = 0; r < world; ++r) {
      const float* g = gradients[static_cast<size_t>(r)].data();
      int8_t* e = run.errors[static_cast<size_t>(r)].data();
      for (size_t i = 0; i < d; ++i) {
        const float s_i = scale[i];
        const float a = static_cast<float>(e[i]) / (ratio * before[i]);
        const float h = std::clamp(g[i], -clip, clip) + a;
        const float whole = std::nearbyint(h * s_i);
        const float code = c.bits == 1 ? (h >= 0 ? 1 : -1) : whole < low ? low : whole > high ? high : whole;
        const float decoded = c.bits == 1 ? code * (1 / (2 * s_i)) : code / s_i;
        const float z = std::isinf(s_i) ? 0 : ((1 - gain) * a + gain * (h - decoded)) * (ratio * s_i);
        const float left = random ? std::floor(z + to_unit(random_word(plan.seed, static_cast<int64_t>(i),
                                                                       static_cast<uint32_t>(t), Purpose::error_code,
                                                                       static_cast<uint32_t>(r))))
                                  : std::nearbyint(z);
        e[i] = static_cast<int8_t>(left < -128 ? -128 : left > 127 ? 127 : left);
        if (c.reset_every > 0 && t % c.reset_every == 0) e[i] = 0;
        sum[i] += code;
      }
    }
    for (size_t i = 0; i < d; ++i) {
      const float by = scale[i] * static_cast<float>(world);
      m[i] = sum[i] / (c.bits == 1 ? 2 * by : by);
      values[i] = values[i] - kLr * m[i];
    }
    run.means.push_back(std::move(mean));
  }
  return run;
}

void expect_equal(const ExchangePlan& plan, const LocoRun& expected) {
  const LocoRun run = run_loco(plan);
  for (size_t t = 0; t < run.means.size(); ++t) ASSERT_EQ(run.means[t], expected.means[t]) << "step " << t + 1;
  EXPECT_EQ(run.errors, expected.errors);
}

TEST(Loco, MatchesTheParameterServerBitForBit) {
  for (const Topology& topology : kRanks)
    for (const int64_t bits : {1, 4, 8})
      for (const char* scale : {"auto", "2^4"}) {
        ExchangePlan plan = loco_plan(scale, bits);
        plan.topology = topology;
        plan.steps = 12;  // errors are reset in step 8
        if (topology.world() % 2 == 1) plan.config.set("error_gain_new", 0.2);
        if (topology.world() % 3 == 1) plan.config.set("error_rounding", "nearest");
        if (bits == 8) plan.config.set("error_scale", 6);
        if (topology.world() == 2) plan.config.set("clip_element", 0.2);
        const LocoRun expected = simulate(plan);
        for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
          plan.config.sharding = sharding;
          SCOPED_TRACE(std::to_string(topology.world()) + " ranks, " + std::to_string(bits) + " bits, scale " + scale +
                       ", sharding " + plan.config.text("sharding"));
          expect_equal(plan, expected);
        }
      }
}

// A code of 1 bit has no value for 0. Every second block has its first gradient in step 4. The other run resets its
// errors after step 3, so both then have the same means.
TEST(Loco, ABlockHasTheMean0BeforeItsFirstGradient) {
  for (const int64_t bits : {1, 4, 8})
    for (const char* rounding : {"random", "nearest"}) {
      ExchangePlan plan = loco_plan("auto", bits);
      plan.topology = {3, 1};
      plan.steps = 7;
      plan.config.set("error_rounding", rounding).set("reset_every", 3);
      std::vector<bool> late(static_cast<size_t>(plan.d()));
      const std::vector<Segment> blocks = plan.blocks();
      for (size_t b = 0; b < blocks.size(); b += 2)
        for (int64_t i = blocks[b].begin; i < blocks[b].end; ++i) late[static_cast<size_t>(i)] = true;
      const auto run = [&](bool waits) {
        return run_loco(plan, [&, waits](int rank, int64_t t, int64_t i, float) {
                 return waits && t <= 3 && late[static_cast<size_t>(i)] ? 0 : gradient(rank, t, i, 0);
               }).means;
      };
      const std::vector<Values> waiting = run(true), all = run(false);
      for (size_t t = 0; t < 7; ++t)
        for (size_t i = 0; i < late.size(); ++i)
          ASSERT_EQ(waiting[t][i], t < 3 && late[i] ? 0 : all[t][i])
              << bits << " bits, step " << t + 1 << ", element " << i;
      plan.steps = 3;
      for (const auto& errors : run_loco(plan, [](int, int64_t, int64_t, float) { return 0.0f; }).errors)
        EXPECT_EQ(errors, std::vector<int8_t>(errors.size()));
    }
}

TEST(Loco, DoesNotDependOnBucketSizeOrThreads) {
  for (const int64_t bits : {1, 4, 8}) {
    ExchangePlan plan = loco_plan("auto", bits);
    plan.topology = {3, 1};
    plan.steps = 5;
    plan.config.set("reset_every", 3);
    plan.shapes.push_back({40000});
    const LocoRun reference = run_loco(plan);
    plan.bucket_bytes = 1 << 20;
    plan.threads = 3;
    const LocoRun run = run_loco(plan);
    EXPECT_EQ(run.means, reference.means);
    EXPECT_EQ(run.errors, reference.errors);
  }
}

TEST(Loco, RefusesBucketsThatTheRanksCannotDivide) {
  run_local({3, 1}, [](Communicator& comm) {
    const Buckets buckets({{"w", Var(Tensor::zeros({32}), true)}}, {});
    EXPECT_NE(error_of([&] { make_exchange("loco", buckets, comm, 1); }).find("not a multiple of 3 ranks"),
              std::string::npos);
  });
}

TEST(Loco, Pitfall25FewerValuesThanRanks) {
  for (const int64_t bits : {1, 4, 8})
    for (const Sharding sharding : {Sharding::none, Sharding::zero2}) {
      ExchangePlan plan = loco_plan("auto", bits);
      plan.topology = {8, 1};
      plan.shapes = {{2}, {1}};
      plan.config.sharding = sharding;
      expect_equal(plan, simulate(plan));
    }
}

// Multiples of 1/s within the range of the codes are sent without loss: the bits of dense.
TEST(Loco, Pitfall8IsDenseIfNothingRounds) {
  for (const Topology& topology : kRanks)
    for (const int64_t bits : {4, 8}) {
      ExchangePlan plan = loco_plan("2^10", bits);
      plan.topology = topology;
      plan.steps = 10;
      const int range = 1 << bits;
      const GradientOf exact = [&](int rank, int64_t step, int64_t i, float) {
        return static_cast<float>((i * 37 + rank * 11 + step * 5) % range - range / 2) * 0x1p-10f;
      };
      const LocoRun run = run_loco(plan, exact);
      for (int64_t t = 1; t <= plan.steps; ++t) {
        Values expected;
        for (int64_t i = 0, d = plan.d(); i < d; ++i) {
          float sum = 0;
          for (int rank = 0; rank < topology.world(); ++rank) sum += exact(rank, t, i, 0);
          expected.push_back(sum / static_cast<float>(topology.world()));
        }
        ASSERT_EQ(run.means[static_cast<size_t>(t - 1)], expected) << "step " << t;
      }
      for (const auto& errors : run.errors) EXPECT_EQ(errors, std::vector<int8_t>(errors.size()));
    }
}

// A gradient far below one step: rounding the error to nearest loses it forever, random rounding sends it on average.
TEST(Loco, NearestRoundingOfTheErrorHasADeadZone) {
  ExchangePlan plan = loco_plan("2^4");
  plan.config.set("error_gain_new", 0.2);
  plan.config.set("reset_every", 0);
  plan.steps = 300;
  const float g = 0.4f / (0.2f * 4 * 16);  // below 0.5/(β·s_e)
  const GradientOf constant = [&](int, int64_t, int64_t, float) { return g; };
  plan.config.set("error_rounding", "nearest");
  for (const Values& mean : run_loco(plan, constant).means) ASSERT_EQ(mean, Values(mean.size()));
  plan.config.set("error_rounding", "random");
  plan.config.set("error_gain_new", 1);
  double sum = 0, all = 0;
  for (const Values& mean : run_loco(plan, constant).means)
    for (const float m : mean) sum += m, ++all;
  EXPECT_NEAR(sum / all, g, 0.01 * g) << "mean of 300 000 random roundings";
}

// floor(z + U) has mean z for any fraction.
TEST(Loco, RandomRoundingOfTheErrorIsUnbiased) {
  constexpr int64_t kValues = 1 << 16;
  for (const float fraction : {0.125f, 0.3f, 0.9f}) {
    std::vector<float> g(kValues, fraction / 64);
    std::vector<int8_t> e(kValues);
    std::vector<uint32_t> words(kValues / 8);
    const loco::Settings settings{4, 1, 0, INFINITY, true, false};
    ASSERT_TRUE(loco::encode(g.data(), e.data(), kValues, {16, 64, 64}, settings,
                             {7, 1, static_cast<uint32_t>(Purpose::error_code), 0}, 0, words.data()).finite);
    double mean = 0;
    for (const int8_t value : e) mean += value / static_cast<double>(kValues);
    EXPECT_NEAR(mean, fraction, 5 * std::sqrt(fraction * (1 - fraction) / kValues)) << "5 standard deviations";
  }
}

// Pitfall 17: the gain applies to the new error, codes are rounded instead of truncated, and a reset clears all
// history.
TEST(Loco, Pitfall17TheGainAppliesToTheNewError) {
  std::vector<float> g{0.7f / 16};
  std::vector<int8_t> e{0};
  uint32_t word = 0;
  const auto step = [&](float gain, bool reset) {
    EXPECT_TRUE(
        loco::encode(g.data(), e.data(), 1, {16, 64, 64}, {4, gain, 1 - gain, INFINITY, false, reset}, {}, 0, &word)
            .finite);
  };
  step(0.25f, false);  // h = 0.7 steps gives code 1; the error is −0.3 steps, i.e. −1.2 units, times the gain 0.25
  EXPECT_EQ(word, 1u);
  EXPECT_EQ(e[0], std::nearbyint(-1.2f * 0.25f));
  e[0] = -8;  // −2 steps: h = −1.3 steps gives code −1; the new error is −0.3 steps
  step(0.25f, false);
  EXPECT_EQ(word, 15u) << "-1 in four bits";
  EXPECT_EQ(e[0], std::nearbyint(0.75f * -8 + 0.25f * -1.2f));
  step(0.25f, true);
  EXPECT_EQ(e[0], 0);
}

TEST(Loco, Pitfall17ResetClearsTheWholeHistory) {
  ExchangePlan plan = loco_plan("2^4");
  plan.topology = {2, 1};
  plan.config.set("error_gain_new", 0.2);
  plan.config.set("reset_every", 5);
  plan.steps = 10;
  // Two histories that differ before the reset must agree after it.
  const auto run = [&](float first) {
    return run_loco(plan, [=](int rank, int64_t t, int64_t i, float) {
             return t <= 5 ? first * static_cast<float>(i % 7) * 0.01f : gradient(rank, t, i, 0);
           }).means;
  };
  const std::vector<Values> a = run(1), b = run(-3);
  EXPECT_NE(a[3], b[3]);
  for (size_t t = 5; t < 10; ++t) EXPECT_EQ(a[t], b[t]) << "step " << t + 1;
  plan.steps = 5;
  for (const auto& errors : run_loco(plan).errors) EXPECT_EQ(errors, std::vector<int8_t>(errors.size()));
}

class LocoCodesOn : public OnEveryTarget {};
GODWIT_EVERY_TARGET(LocoCodesOn);

// Computes sent codes and remaining errors with scalar code.
void check_codes(int bits, bool random, int64_t n, float factor = 1) {
  const RngKey rng{3, 1, 2, 0};
  constexpr int64_t kElement = 77;
  const Values g = random_row<float>(5, 1, n);
  const float s = factor * (bits == 8 ? 20 : 3), before = factor * 100, after = factor * 90;
  const float clip = random ? INFINITY : 2, old = random ? 0.25f : 0;
  const float unit = 1 / (2 * s);
  std::vector<uint32_t> buffer(static_cast<size_t>(n + kRandomSlack));
  const uint32_t* numbers = random_words(rng, kElement, n, buffer.data());
  std::vector<int8_t> e(static_cast<size_t>(n)), left;
  for (size_t i = 0; i < e.size(); ++i) e[i] = static_cast<int8_t>(i * 37);
  std::vector<uint32_t> words(static_cast<size_t>((n * bits + 31) / 32), 0xFFFFFFFF), expected(words.size());
  int64_t saturated = 0, zero = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float a = static_cast<float>(e[static_cast<size_t>(i)]) / before;
    const float h = std::min(std::max(g[static_cast<size_t>(i)], -clip), clip) + a;
    const float whole = std::nearbyint(h * s);
    const float code = std::min(std::max(whole, loco::lowest(bits)), loco::highest(bits));
    const float decoded = bits == 1 ? (h >= 0 ? unit : -unit) : code / s;
    const float z = (old * a + (1 - old) * (h - decoded)) * after;
    const float rounded = random ? std::floor(z + static_cast<float>(numbers[i] >> 8) * 0x1p-24f) : std::nearbyint(z);
    left.push_back(static_cast<int8_t>(std::min(std::max(rounded, -128.0f), 127.0f)));
    const auto field = bits == 1 ? static_cast<uint32_t>(h >= 0)
                                 : static_cast<uint32_t>(static_cast<int32_t>(code)) & ((1u << bits) - 1);
    expected[static_cast<size_t>(i * bits / 32)] |= field << (i * bits % 32);
    saturated += bits > 1 && whole != code;
    zero += bits > 1 && code == 0;
  }
  const loco::Counts counts = loco::encode(g.data(), e.data(), n, {s, before, after},
                                           {bits, 1 - old, old, clip, random, false}, rng, kElement, words.data());
  EXPECT_EQ(words, expected) << n << " values of " << bits << " bits";
  EXPECT_EQ(e, left) << n << " values of " << bits << " bits";
  EXPECT_EQ(counts.saturated, saturated);
  EXPECT_EQ(counts.zero, zero);
  EXPECT_TRUE(counts.finite);
}

TEST_P(LocoCodesOn, AreBitExact) {
  for (const int64_t n : {1, 7, 8, 31, 33, 1024, 1025, 5000})
    for (const int bits : {1, 4, 8})
      for (const bool random : {false, true}) check_codes(bits, random, n);
}

// Vector code divides an integer by a scale with the reciprocal and one correction. Tested over all significands, in
// steps.
TEST(Loco, CorrectedReciprocalEqualsDivision) {
  for (uint32_t significand = 0; significand < 1u << 23; significand += 97) {
    const float by = std::bit_cast<float>(0x3F800000u | significand), r = 1 / by;
    for (float x = 1; x <= 128; x += 2) {
      const float q = x * r, corrected = std::fma(std::fma(-q, by, x), r, q);
      if (corrected != x / by) FAIL() << x << " by " << by << " is " << x / by << ", not " << corrected;
    }
  }
}

TEST_P(LocoCodesOn, AreBitExactForAnyScale) {
  RandomStream random(12, Purpose::test);
  for (const float power : {1.0f, 0x1p60f, 0x1p-60f, 0x1p100f, 0x1p-100f})
    for (int i = 0; i < 20; ++i)
      for (const int bits : {1, 4, 8})
        check_codes(bits, i % 2 == 1, 256, power * static_cast<float>(1 + random.uniform()));
}

// Includes sums that float32 cannot round to integers, and sums with a fraction of exactly one half.
TEST_P(LocoCodesOn, AreClampedForAnyFiniteValue) {
  const Values g{3e38f, -3e38f, 1e10f, -1e10f, 7.4999995f, 7.5f, -8.5f, -8.500001f, 0.5f, -0.5f, 1.5f, -0.0f, 1e-45f};
  const std::vector<int> codes{7, -8, 7, -8, 7, 7, -8, -8, 0, 0, 2, 0, 0};
  std::vector<int8_t> e(g.size());
  std::vector<uint32_t> words(2);
  const loco::Counts counts = loco::encode(g.data(), e.data(), std::ssize(g), {1, 1, 1},
                                           {4, 1, 0, INFINITY, false, false}, {}, 0, words.data());
  for (size_t i = 0; i < g.size(); ++i)
    EXPECT_EQ(words[i / 8] >> (4 * (i % 8)) & 15, static_cast<uint32_t>(codes[i]) & 15) << g[i];
  EXPECT_EQ(counts.saturated, 6) << "7.5 rounds to 8, -8.5 to -8";
  EXPECT_EQ(counts.zero, 4);
  EXPECT_EQ(e[0], 127);
  EXPECT_EQ(e[1], -128);
  for (const float size : {1e6f, 1.3e7f, 2e7f, 3e7f, 2147483648.0f, 5e9f}) {  // around the limits of the instructions
    const Values both{size, -size};
    for (const bool random : {false, true}) {
      std::fill(e.begin(), e.end(), 0);
      loco::encode(both.data(), e.data(), 2, {1, 1, 1}, {8, 1, 0, INFINITY, random, false}, {}, 0, words.data());
      EXPECT_EQ(words[0], 0x807Fu) << size;
      EXPECT_EQ(e[0], 127) << size;
      EXPECT_EQ(e[1], -128) << size;
    }
  }
}

TEST_P(LocoCodesOn, RefuseNonFiniteValues) {
  for (const float bad : {INFINITY, -INFINITY, NAN})
    for (const int64_t at : {0, 15, 16, 32}) {
      Values g(33, 1.0f);
      g[static_cast<size_t>(at)] = bad;
      std::vector<int8_t> e(g.size());
      std::vector<uint32_t> words(5);
      EXPECT_FALSE(
          loco::encode(g.data(), e.data(), 33, {1, 1, 1}, {4, 1, 0, 1, false, false}, {}, 0, words.data()).finite)
          << at;
    }
  for (const size_t at : {0, 1023, 1500, 2999}) {  // in any cache-sized piece
    Values g(3000, 1.0f);
    g[at] = NAN;
    std::vector<int8_t> e(g.size());
    std::vector<uint32_t> words(375);
    EXPECT_FALSE(
        loco::encode(g.data(), e.data(), 3000, {1, 1, 1}, {4, 1, 0, 1, false, false}, {}, 0, words.data()).finite)
        << at;
  }
}

TEST_P(LocoCodesOn, SumsAreExact) {
  for (const int bits : {1, 4, 8})
    for (const int senders : {1, 2, 7, 8, 16, 17, 70, 127, 128, 300})
      for (const int64_t n : {1, 33, 256, 1500}) {
        const int64_t stride = (n * bits + 31) / 32 + 3;
        std::vector<uint32_t> words(static_cast<size_t>(stride * senders));
        RandomStream random(3, Purpose::test);
        // All codes at the minimum, all at the maximum (with one bit −1 and 1), and random codes.
        for (const int kind : {0, 1, 2}) {
          for (uint32_t& word : words)
            word = kind == 2 ? random.next()
                             : (bits == 8   ? 0x80808080u
                                : bits == 4 ? 0x88888888u
                                            : 0u) ^
                                   (kind == 1 ? ~0u : 0u);
          std::vector<int32_t> sums(static_cast<size_t>(n)), expected(static_cast<size_t>(n));
          loco::sum_codes(words.data(), stride, senders, bits, n, sums.data());
          for (int64_t i = 0; i < n; ++i) {
            const uint32_t* from = words.data() + i * bits / 32;
            int sum = 0;
            for (int64_t sender = 0; sender < senders; ++sender) {
              const int field = static_cast<int>(from[sender * stride] >> (i * bits % 32)) & ((1 << bits) - 1);
              sum += bits == 1 ? 2 * field - 1 : field >= 1 << (bits - 1) ? field - (1 << bits) : field;
            }
            expected[static_cast<size_t>(i)] = sum;
          }
          EXPECT_EQ(sums, expected) << bits << " bits, " << senders << " senders";
        }
      }
}

// Pitfall 16: at the paper's scale, 2^19, gradients of magnitude 1 are all sent as ±8/2^19.
TEST(Loco, Pitfall16AScaleThatSaturatesIsRefusedOrReported) {
  ExchangePlan plan = loco_plan("2^19");
  plan.topology = {2, 1};
  plan.steps = 3;
  const std::string error = error_of([&] { run_loco(plan); });
  EXPECT_NE(error.find("are saturated: 4 bits at scale 524288 hold |g| up to 1.3351"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("set it to auto"), std::string::npos);
  const GradientOf rare = [](int rank, int64_t t, int64_t i, float x) {
    return i % 500 ? 0 : gradient(rank, t, i + 1, x);
  };
  EXPECT_NE(error_of([&] { run_loco(plan, rare); }).find("100 % of this worker's nonzero codes are saturated"),
            std::string::npos)
      << "values without a gradient must not count as unsaturated";
  plan.config.set("saturation_limit", 1);
  EXPECT_NE(run_loco(plan, rare).summary.find("lower exchange.scale, or set it to auto"), std::string::npos);
  EXPECT_NE(run_loco(plan).summary.find("lower exchange.scale, or set it to auto"), std::string::npos);
  plan.config.set("scale", "2^-20");
  EXPECT_NE(run_loco(plan).summary.find("raise exchange.scale, or set it to auto"), std::string::npos);
  plan.config.set("scale", "auto");
  const std::string summary = run_loco(plan).summary;
  EXPECT_EQ(summary.find("warning"), std::string::npos) << summary;
  EXPECT_TRUE(summary.starts_with("loco: ") && summary.find(" of the values saturated, ") != std::string::npos)
      << summary;
}

// A run without gradients has no nonzero codes, whose share of saturated codes would be 0/0.
TEST(Loco, GradientsOf0DoNotSaturate) {
  ExchangePlan plan = loco_plan("2^4");
  plan.steps = 2;
  for (const Values& mean : run_loco(plan, [](int, int64_t, int64_t, float) { return 0.0f; }).means)
    EXPECT_EQ(mean, Values(mean.size()));
}

// Sums of 128 signs do not fit a byte.
TEST(Loco, SumsOfSignsOf128Workers) {
  ExchangePlan plan = loco_plan("auto", 1);
  plan.topology = {128, 1};
  plan.shapes = {{3}};
  plan.steps = 1;
  EXPECT_EQ(run_loco(plan, [](int, int64_t, int64_t i, float) { return i == 1 ? -0.5f : 0.5f; }).means[0],
            (Values{0.5f, -0.5f, 0.5f}));
}

TEST(Loco, LowBitsDoNotHideNonFiniteGradients) {
  for (const char* scale : {"auto", "2^4"})
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      ExchangePlan plan = loco_plan(scale);
      plan.topology = {2, 1};
      const std::string error = error_of([&] {
        run_loco(plan,
                 [&](int rank, int64_t t, int64_t i, float) { return rank == 1 && t == 2 && i == 200 ? bad : 0.1f; });
      });
      EXPECT_NE(error.find("loco: step 2: the gradient of 'p4' is"), std::string::npos) << error;
    }
}

TEST(Loco, RefusesCountersOfAnotherFormat) {
  run_local({1, 2}, [](Communicator& comm) {
    Buckets buckets({{"a", Var(Tensor::zeros({50}), true)}}, {});
    const std::unique_ptr<Exchange> loco = make_exchange("loco", buckets, comm, 1);
    std::vector<double> counters = loco->counters();
    counters[0] = 100, counters[1] = 3, counters[2] = 20;
    loco->restore(counters);
    EXPECT_EQ(loco->counters(), counters);
    counters.pop_back();  // as in earlier versions
    loco->restore(counters);
    counters.pop_back();
    EXPECT_EQ(error_of([&] { loco->restore(counters); }), "loco: the checkpoint has 5 counters, expected 7");
  });
}

TEST(Loco, RefusesInvalidOptions) {
  const auto error = [](const LocoOptions& options) {
    ExchangePlan plan = loco_plan();
    plan.config = options;
    return error_of([&] { run_loco(plan); });
  };
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(error({.bits = 3}), "loco: bits expects one of 1, 4, 8, got 3");
  expect(error({.scale = "big"}), "scale 'big' is not auto");
  expect(error({.scale = "-4"}), "scale '-4' is not auto");
  expect(error({.scale = "2^"}), "scale '2^' is not auto");
  expect(error({.error_gain_new = 1.5}), "error_gain_new expects a finite number in [0, 1], got 1.5");
  expect(error({.error_scale = 0}), "error_scale");
  expect(error_of([] { ExchangeConfig("loco").set("error_rounding", "up"); }), "error_rounding 'up'");
  expect(error({.saturation_limit = 0}), "saturation_limit");
  expect(error({.reset_every = -1}), "reset_every");
}

}  // namespace loco_test
}  // namespace godwit
