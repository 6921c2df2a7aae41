#include "comm/exchange/block_exchange.h"

#include <hwy/targets.h>

#include <cmath>
#include <cstring>

#include "comm/buckets/blocks.h"
#include "comm/compress/int8.h"
#include "comm/compress/levels.h"
#include "comm/exchange/ef21.h"
#include "comm/exchange/one_bit_sgd.h"
#include "comm/exchange/qsgd.h"
#include "comm/exchange/terngrad.h"
#include "comm/exchange/topk.h"
#include "engine/context.h"
#include "tests/comm/exchange/exchange_harness.h"
#include "tests/comm/table.h"
#include "tests/support.h"

namespace godwit {
namespace block_exchange_test {

using test::ExchangePlan;
using test::ExchangeRun;
using test::kRanks;
using test::Values;

ExchangePlan plan_of(const std::string& name) {
  ExchangePlan plan;
  plan.config = name;
  plan.config.set("block_size", 64);
  return plan;
}

// A lossless compressor.
class Identity : public Compressor {
 public:
  int64_t payload_words(int64_t n) const override { return n; }
  void encode(const float* x, int64_t n, const BlockRng&, uint32_t* code) const override {
    std::memcpy(code, x, static_cast<size_t>(4 * n));
  }
  void decode(const uint32_t* code, int64_t n, float* x) const override {
    std::memcpy(x, code, static_cast<size_t>(4 * n));
  }
};

TEST(BlockExchange, LosslessCompressorGivesTheDenseAllReduceBitForBit) {
  for (const Topology& topology : kRanks) {
    ExchangePlan dense{.topology = topology, .steps = 5};
    const ExchangeRun expected = test::run_exchange(dense);
    for (const Reply reply : {Reply::f32, Reply::coded, Reply::all_gather})
      for (const Feedback memory : {Feedback::none, Feedback::residual}) {
        ExchangePlan plan = dense;
        plan.make = [&](const Buckets& buckets, const Communicator& comm) {
          const BlockExchangeOptions options{"identity", 64, reply, memory, reply == Reply::coded};
          return block_exchange(std::make_unique<Identity>(), options, buckets, comm, 1);
        };
        const ExchangeRun run = test::run_exchange(plan);
        EXPECT_EQ(run.means, expected.means);
        for (const auto& state : run.state)
          for (const auto& [name, values] : state)
            for (const float e : values) EXPECT_TRUE(e == 0 || std::isnan(e)) << name;
      }
  }
}

// EF21 with a lossless compressor is exact up to the rounding of h + (g − h).
TEST(BlockExchange, Ef21WithALosslessCompressorIsTheDenseMeanWithinRounding) {
  ExchangePlan dense{.topology = {2, 2}, .steps = 5};
  const ExchangeRun expected = test::run_exchange(dense);
  ExchangePlan plan = dense;
  plan.make = [&](const Buckets& buckets, const Communicator& comm) {
    return block_exchange(std::make_unique<Identity>(), {.name = "identity", .worker = Feedback::ef21}, buckets, comm,
                          1);
  };
  const ExchangeRun run = test::run_exchange(plan);
  for (size_t step = 0; step < 5; ++step)
    for (size_t i = 0; i < expected.means[step].size(); ++i)
      EXPECT_NEAR(run.means[step][i], expected.means[step][i], 3e-7 * static_cast<double>(step + 1));
}

float level(float x, float factor, int levels, float random) {
  return std::clamp(std::floor(x * factor + random), -static_cast<float>(levels), static_cast<float>(levels));
}

float draw(int64_t element, int64_t step, Purpose purpose, int sender) {
  return to_unit(random_word(42, element, static_cast<uint32_t>(step), purpose, static_cast<uint32_t>(sender)));
}

// Quantization by the formula, one value at a time.
test::Quantize scaled(int levels, const std::function<float(const Values&)>& scale_of) {
  return [=](const Values& z, int64_t begin, int64_t step, Purpose purpose, int sender) {
    const float scale = scale_of(z), most = static_cast<float>(levels);
    Values u(z.size());
    const float* from = z.data();
    float* to = u.data();
    for (int64_t i = 0, n = std::ssize(z); scale != 0 && i < n; ++i)
      to[i] = level(from[i], most / scale, levels, draw(begin + i, step, purpose, sender)) * (scale / most);
    return u;
  };
}

std::vector<double> squares(const Values& z) {
  std::vector<double> all(z.size());
  const float* from = z.data();
  double* to = all.data();
  for (size_t i = 0, n = z.size(); i < n; ++i) to[i] = static_cast<double>(from[i]) * from[i];
  return all;
}

float largest(const Values& z) {
  float most = 0;
  const float* from = z.data();
  for (size_t i = 0, n = z.size(); i < n; ++i) most = std::abs(from[i]) > most ? std::abs(from[i]) : most;
  return most;
}

test::Quantize qsgd(int levels) {
  return scaled(levels, [](const Values& z) { return static_cast<float>(std::sqrt(test::lane_sum(squares(z)))); });
}

test::Quantize terngrad(double clip) {
  return scaled(1, [=](const Values& z) {
    if (clip == 0) return largest(z);
    const double sigma = std::sqrt(test::lane_sum(squares(z)) / static_cast<double>(z.size()));
    return std::min(largest(z), static_cast<float>(clip * sigma));
  });
}

Values int8(const Values& z, int64_t, int64_t, Purpose, int) {
  const float scale = largest(z);
  Values u(z.size());
  const float* from = z.data();
  float* to = u.data();
  for (size_t i = 0, n = z.size(); scale != 0 && i < n; ++i)
    to[i] = std::nearbyint(from[i] * (127 / scale)) * (scale / 127);
  return u;
}

TEST(BlockExchange, QsgdMatchesTheParameterServer) {
  for (const Topology& topology : kRanks) {
    ExchangePlan plan = plan_of("qsgd");
    plan.topology = topology;
    test::expect_parameter_server(plan, qsgd(7));
  }
  for (const char* reply : {"f32", "coded", "none"})
    for (const char* feedback : {"none", "worker"})
      for (const int levels : {1, 5, 127}) {
        if (levels == 1 && std::string(feedback) != "none") continue;
        ExchangePlan plan = plan_of("qsgd");
        plan.topology = {3, 1};
        plan.steps = 15;
        plan.config.set("reply", reply).set("error_feedback", feedback).set("levels", levels);
        test::expect_parameter_server(plan, qsgd(levels));
      }
}

TEST(BlockExchange, TernGradMatchesTheParameterServer) {
  for (const Topology& topology : kRanks)
    for (const double clip : {0.0, 2.5}) {
      ExchangePlan plan = plan_of("terngrad");
      plan.topology = topology;
      plan.config.set("clip_sigma", clip).set("reply", clip > 0 ? "f32" : "coded");
      test::expect_parameter_server(plan, terngrad(clip));
    }
}

// The mean of the positive values and of the negative values.
Values one_bit(const Values& z, int64_t, int64_t, Purpose, int) {
  std::vector<double> plus(z.size()), minus(z.size());
  const float* from = z.data();
  double count = 0, *above = plus.data(), *below = minus.data();
  for (size_t i = 0, n = z.size(); i < n; ++i) {
    (from[i] >= 0 ? above : below)[i] = from[i];
    count += from[i] >= 0;
  }
  const double others = static_cast<double>(z.size()) - count;
  const float one = count > 0 ? static_cast<float>(test::lane_sum(plus) / count) : 0;
  const float zero = others > 0 ? static_cast<float>(test::lane_sum(minus) / others) : 0;
  Values u(z.size());
  float* to = u.data();
  for (size_t i = 0, n = z.size(); i < n; ++i) to[i] = from[i] >= 0 ? one : zero;
  return u;
}

// The values of largest magnitude; ties go to the first.
test::Quantize topk(double density) {
  return [=](const Values& z, int64_t, int64_t, Purpose, int) {
    std::vector<size_t> order(z.size());
    for (size_t i = 0; i < z.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return std::abs(z[a]) > std::abs(z[b]); });
    Values u(z.size());
    for (double i = 0; i < density * static_cast<double>(z.size()); ++i)
      u[order[static_cast<size_t>(i)]] = z[order[static_cast<size_t>(i)]];
    return u;
  };
}

TEST(BlockExchange, OneBitSgdMatchesTheParameterServer) {
  for (const Topology& topology : kRanks) {
    ExchangePlan plan = plan_of("one_bit_sgd");
    plan.topology = topology;
    test::expect_parameter_server(plan, one_bit);
  }
  for (const char* feedback : {"both", "server", "worker", "none"}) {
    ExchangePlan plan = plan_of("one_bit_sgd");
    plan.topology = {3, 1};
    plan.steps = 15;
    plan.config.set("error_feedback", feedback).set("block_size", 0);
    test::expect_parameter_server(plan, one_bit);
  }
}

TEST(BlockExchange, TopKMatchesTheParameterServer) {
  for (const Topology& topology : kRanks) {
    ExchangePlan plan;
    plan.config = TopKOptions{.density = 0.05};
    plan.topology = topology;
    test::expect_parameter_server(plan, topk(0.05));
  }
  for (const char* reply : {"f32", "coded", "none"})
    for (const double density : {0.001, 0.3, 1.0}) {
      ExchangePlan plan = plan_of("topk");
      plan.topology = {2, 2};
      plan.steps = 15;
      plan.config.set("density", density).set("reply", reply);
      plan.config.set("error_feedback", plan.reply() == "coded" ? "both" : density == 1 ? "none" : "worker");
      test::expect_parameter_server(plan, topk(density));
    }
}

// h ← h + C(g − h) on every worker; the mean of all h changes by the mean of the messages.
TEST(BlockExchange, Ef21MatchesTheParameterServer) {
  for (const Topology& topology : kRanks)
    for (const auto compressor : {Ef21Options::Compressor::topk, Ef21Options::Compressor::one_bit}) {
      ExchangePlan plan;
      const bool largest = compressor == Ef21Options::Compressor::topk;
      plan.config = Ef21Options{.compressor = compressor,
                                .density = largest ? 0.05 : Ef21Options{}.density,
                                .reply = topology.nodes == 2 ? Reply::f32 : Reply::all_gather};
      plan.topology = topology;
      const test::Quantize quantize = largest ? topk(0.05) : one_bit;
      const ExchangeRun run = test::run_exchange(plan);
      const size_t d = static_cast<size_t>(plan.d());
      const int world = topology.world();
      std::vector<Values> h(static_cast<size_t>(world), Values(d));
      const std::vector<Segment> blocks = plan.blocks();
      Values x(d), mean_h(d);
      for (int64_t step = 1; step <= plan.steps; ++step) {
        Values change(d);
        for (int rank = 0; rank < world; ++rank)
          for (const Segment& b : blocks) {
            const int64_t n = b.numel();
            float *own = h[static_cast<size_t>(rank)].data() + b.begin, *sum = change.data() + b.begin;
            const float* at = x.data() + b.begin;
            Values z(static_cast<size_t>(n));
            float* to = z.data();
            for (int64_t i = 0; i < n; ++i) to[i] = test::gradient(rank, step, b.begin + i, at[i]) - own[i];
            const Values sent = quantize(z, b.begin, step, Purpose::gradient_code, rank);
            const float* u = sent.data();
            for (int64_t i = 0; i < n; ++i) {
              own[i] += u[i];
              sum[i] += u[i];
            }
          }
        for (size_t i = 0; i < d; ++i) {
          mean_h[i] += change[i] / static_cast<float>(world);
          x[i] -= test::kLr * mean_h[i];
        }
        ASSERT_EQ(run.means[static_cast<size_t>(step) - 1], mean_h)
            << plan.config.text("compressor") << ", step " << step;
      }
      for (size_t rank = 0; rank < run.state.size(); ++rank) {
        EXPECT_EQ(run.state[rank].at("h"), h[rank]);
        EXPECT_EQ(run.state[rank].at("mean_h"), mean_h);
      }
    }
}

// Pitfall 13: error feedback converges if compression is a contraction: the error is smaller than the input. Inputs:
// normal values, heavy tails, few nonzero values, and scales that differ by layer.
TEST(BlockExchange, Pitfall13CompressorsWithErrorFeedbackAreContractive) {
  RandomStream random(8, Purpose::test);
  std::vector<Values> hard(4, Values(1000));
  for (size_t i = 0; i < 1000; ++i) {
    hard[0][i] = static_cast<float>(random.normal());
    hard[1][i] = static_cast<float>(std::tan(1.57 * (2 * random.uniform() - 1)));  // Cauchy distribution
    hard[2][i] = i % 100 == 0 ? static_cast<float>(random.normal()) : 0;
    hard[3][i] = hard[0][i] * std::pow(10.0f, -static_cast<float>(i / 100));
  }
  const std::pair<std::unique_ptr<Compressor>, const char*> compressors[] = {{one_bit_compressor(), "one_bit"},
                                                                             {topk_compressor(0.01), "topk"},
                                                                             {qsgd_compressor(16), "qsgd"},
                                                                             {int8_compressor(), "int8"}};
  for (const auto& [compressor, name] : compressors)
    for (const Values& x : hard) {
      std::vector<uint32_t> code(static_cast<size_t>(compressor->payload_words(1000)));
      double lost = 0, given = 0;
      for (uint32_t step = 1; step <= 20; ++step) {
        compressor->encode(x.data(), 1000, {{1, step, 1, 0}, 0}, code.data());
        Values rest = x, scratch(1000);
        compressor->add(code.data(), 1000, -1, rest.data(), scratch.data());
        lost += test::lane_sum(squares(rest));
        given += test::lane_sum(squares(x));
      }
      EXPECT_LT(lost, given * 0.9999) << name;
    }
}

TEST(BlockExchange, IndicesOfTopKHave32Bits) {
  const auto compressor = topk_compressor(0.01);
  EXPECT_EQ(compressor->payload_words(int64_t{UINT32_MAX}), 2 * ((int64_t{UINT32_MAX} + 99) / 100));
  EXPECT_NE(error_of([&] {
              compressor->payload_words(int64_t{UINT32_MAX} + 1);
            }).find("topk: a block has 4294967296 values, expected at most"),
            std::string::npos);
}

void expect_topk(const Values& x, double density) {
  const auto compressor = topk_compressor(density);
  const auto n = static_cast<int64_t>(x.size());
  std::vector<uint32_t> code(static_cast<size_t>(compressor->payload_words(n)) + 1, 0xDEADBEEF);
  compressor->encode(x.data(), n, {}, code.data());
  EXPECT_EQ(code.back(), 0xDEADBEEF);
  Values back(x.size());
  compressor->decode(code.data(), n, back.data());
  EXPECT_EQ(back, topk(density)(x, 0, 0, Purpose::test, 0)) << n << " " << density;
}

TEST(BlockExchange, TopKHandlesLargeBlocksAndTies) {
  const Values x = test::random_row<float>(4, 0, 70000);
  for (const int64_t n : {int64_t{1}, int64_t{2}, int64_t{65535}, int64_t{65536}, int64_t{65537}, int64_t{70000}})
    for (const double density : {0.0001, 0.37, 1.0}) expect_topk({x.begin(), x.begin() + n}, density);
  // The sample, every 31st value, consists of the largest values.
  Values sampled(10'000);
  for (size_t i = 0; i < sampled.size(); ++i) sampled[i] = i % 31 == 0 ? 9 : 1 + 1e-5f * static_cast<float>(i);
  expect_topk(sampled, 0.1);
  const Values equal{1, -1, 0, 1, 2, -0.0f, 1, -1};
  const auto compressor = topk_compressor(0.5);
  std::vector<uint32_t> code(static_cast<size_t>(compressor->payload_words(8)));
  compressor->encode(equal.data(), 8, {}, code.data());
  Values back(8);
  compressor->decode(code.data(), 8, back.data());
  EXPECT_EQ(back, (Values{1, -1, 0, 1, 2, 0, 0, 0}));
  EXPECT_EQ(code[4], 0x00010000u) << "positions 0 and 1";
  EXPECT_EQ(code[5], 0x00040003u);
}

TEST(BlockExchange, Int8WireMatchesTheParameterServer) {
  for (const Topology& topology : kRanks) {
    for (const char* feedback : {"none", "worker", "server", "both"}) {
      ExchangePlan plan{.topology = topology, .steps = 15};
      plan.config.set("wire", "int8").set("error_feedback", feedback);
      test::expect_parameter_server(plan, int8);
    }
  }
}

TEST(BlockExchange, FeedbackOnBothSidesMatchesTheParameterServer) {
  for (const char* feedback : {"both", "server", "worker", "none"})
    for (const int64_t block_size : {0, 1, 17, 1024}) {
      ExchangePlan plan = plan_of("qsgd");
      plan.topology = {2, 2};
      plan.steps = 15;
      plan.config = QsgdOptions{.block_size = block_size, .reply = Reply::coded, .levels = 16};
      plan.config.set("error_feedback", feedback);
      test::expect_parameter_server(plan, qsgd(16));
    }
}

TEST(BlockExchange, ResultsDoNotDependOnBucketsOrThreads) {
  for (const char* name : {"qsgd", "terngrad", "one_bit_sgd", "topk", "ef21"}) {
    ExchangePlan plan = plan_of(name);
    plan.topology = {2, 2};
    plan.steps = 2;  // the second step depends on the state of the first
    plan.shapes = {{90000}, {64, 3}, {1}, {20000}};
    if (plan.config.name() == "qsgd") plan.config.set("reply", "coded").set("error_feedback", "both");
    const ExchangeRun expected = test::run_exchange(plan);
    for (const int64_t bytes : {int64_t{4}, int64_t{100000}, int64_t{1} << 30}) {
      plan.bucket_bytes = bytes;
      plan.threads = bytes == 4 ? 3 : 5;
      EXPECT_EQ(test::run_exchange(plan).means, expected.means) << bytes;
    }
  }
}

TEST(BlockExchange, FewerValuesThanRanks) {
  for (const char* reply : {"f32", "coded", "none"}) {
    ExchangePlan plan = plan_of("qsgd");
    plan.topology = {4, 2};
    plan.shapes = {{2}, {1}};
    plan.config.set("reply", reply).set("error_feedback", std::string(reply) == "coded" ? "both" : "worker");
    test::expect_parameter_server(plan, qsgd(7));
  }
}

// In the QSGD paper every rank receives every message. The mean must equal the owners' float32 means.
TEST(BlockExchange, AllGatherGivesTheSameBitsAsFloat32Replies) {
  ExchangePlan plan = plan_of("qsgd");
  plan.topology = {3, 2};
  const ExchangeRun owners = test::run_exchange(plan);
  plan.config.set("reply", "none");
  EXPECT_EQ(test::run_exchange(plan).means, owners.means);
}

// Words per block of 64 values: 7 levels 1 + 8, 2-bit codes 1 + 4, signs 2 + 2, five values with positions 5 + 3.
TEST(BlockExchange, BytesPerRankEqualTheFormulas) {
  for (const Topology& topology : kRanks)
    for (const auto& [name, block] : {std::pair{"qsgd", 9}, {"terngrad", 5}, {"one_bit_sgd", 4}, {"topk", 8}}) {
      const int64_t n = topology.nodes, m = topology.workers_per_node, world = n * m;
      for (const char* reply : {"f32", "coded", "none"}) {
        ExchangePlan plan = plan_of(name);
        plan.topology = topology;
        plan.steps = 3;
        plan.shapes = {{64 * 3 * world}};
        plan.config.set("reply", reply);
        if (plan.config.has("error_feedback")) plan.config.set("error_feedback", "none");
        if (plan.config.has("density")) plan.config.set("density", 0.07);
        const bool owners = plan.reply() != "none";
        const int64_t sent = 4 * 3 * block * (owners ? 1 : world);  // to each peer: three blocks, or all blocks
        const int64_t back = plan.reply() == "f32" ? 4 * 3 * 64 : owners ? sent : 0;
        for (const CommCount& count : test::run_exchange(plan).sent) {
          EXPECT_EQ(count.bytes_intra, 3 * (m - 1) * (sent + back)) << name << " " << reply;
          EXPECT_EQ(count.bytes_inter, 3 * (n - 1) * m * (sent + back)) << name << " " << reply;
          EXPECT_EQ(count.calls, world == 1 ? 0 : owners ? 6 : 3);
        }
      }
    }
}

// With unequal segments, every message has the size of the longest segment.
TEST(BlockExchange, BytesOfUnevenSegmentsFollowTheLongestSegment) {
  ExchangePlan plan = plan_of("qsgd");
  plan.topology = {5, 1};
  plan.steps = 1;
  plan.config.set("reply", "coded");
  plan.bucket_bytes = 1 << 20;
  const ExchangeRun run = test::run_exchange(plan);
  Buckets buckets({{"a", Var(Tensor::zeros({100}), true), true},
                   {"b", Var(Tensor::zeros({1}), true), true},
                   {"c", Var(Tensor::zeros({72}), true), true},
                   {"d", Var(Tensor::zeros({152}), true), true},
                   {"e", Var(Tensor::zeros({700}), true), true},
                   {"f", Var(Tensor::zeros({3}), true), true}},
                  {1 << 20, 1 << 20, 160});
  const BlockLayout layout(buckets[0], 64, 5);
  int64_t longest = 0;
  for (int s = 0; s < 5; ++s) {
    int64_t words = 0;
    for (const Segment& block : layout.parts(s)) words += 1 + (block.numel() * 4 + 31) / 32;
    longest = std::max(longest, words);
  }
  for (const CommCount& count : run.sent) EXPECT_EQ(count.bytes_inter, 2 * 4 * 4 * longest);
}

// Over 4000 steps the mean of the messages is within five standard errors of the value; f is the value's fractional
// position between two levels. Random numbers are independent across ranks, so four ranks have a quarter of the
// variance.
TEST(BlockExchange, StochasticCodesAreUnbiasedAndIndependentAcrossRanks) {
  const std::vector<float> x = test::random_row<float>(3, 0, 64);
  for (const char* name : {"qsgd", "terngrad"}) {
    const double step_size = std::string(name) == "qsgd" ? std::sqrt(test::lane_sum(squares(x))) / 7 : largest(x);
    std::vector<double> variance;
    for (const int ranks : {1, 4}) {
      std::vector<double> sum(64), square(64);
      constexpr int kSteps = 4000;
      run_local({ranks, 1}, [&](Communicator& comm) {
        Buckets buckets({{"w", Var(Tensor::zeros({64}), true), true}}, {.alignment = 32 * ranks});
        ExchangeConfig config = name;
        if (config.has("clip_sigma")) config.set("clip_sigma", 0);
        const auto exchange = make_exchange(config, buckets, comm, 5);
        for (int step = 1; step <= kSteps; ++step) {
          std::copy(x.begin(), x.end(), buckets[0].grad.data<float>());
          exchange->mean(buckets[0], comm, step);
          if (comm.rank > 0) continue;
          for (size_t i = 0; i < 64; ++i) {
            const double error = buckets[0].grad.data<float>()[i] - x[i];
            sum[i] += error;
            square[i] += error * error;
          }
        }
      });
      double total = 0;
      for (size_t i = 0; i < 64; ++i) {
        total += square[i] / kSteps;
        const double f = std::abs(x[i]) / step_size - std::floor(std::abs(x[i]) / step_size);
        const double standard_error = step_size * std::sqrt(f * (1 - f) / kSteps / ranks);
        EXPECT_LE(std::abs(sum[i] / kSteps), 5 * standard_error + 1e-6) << name << " value " << i;
      }
      variance.push_back(total);
    }
    EXPECT_NEAR(variance[0] / variance[1], 4, 0.4) << name;
  }
}

TEST(BlockExchange, NonFiniteGradientsNameStepAndParameter) {
  for (const char* name : {"qsgd", "terngrad", "one_bit_sgd", "topk", "ef21", "dense"})
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      const std::string error = error_of([&] {
        run_local({2, 1}, [&](Communicator& comm) {
          Buckets buckets(
              {{"first", Var(Tensor::zeros({70}), true), true}, {"last", Var(Tensor::zeros({5}), true), true}},
              {.alignment = 64});
          ExchangeConfig config = name;
          if (config.has("wire")) config.set("wire", "int8");
          const auto exchange = make_exchange(config, buckets, comm, 1);
          exchange->mean(buckets[0], comm, 1);
          if (comm.rank == 1) buckets[0].grad.data<float>()[5 + 66] = bad;
          exchange->mean(buckets[0], comm, 2);
        });
      });
      EXPECT_NE(error.find(std::string(name) + ": step 2: the gradient of 'first' is "), std::string::npos) << error;
      EXPECT_NE(error.find("at element 66"), std::string::npos) << error;
    }
}

TEST(Levels, MatchThePlainFormulaForAnyLengthAndVectorWidth) {
  const Values x = test::random_row<float>(9, 0, 5000);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    // The decoder reads the context.
    const ContextGuard guard([&](Context& next) {
      next.vector_bits = target <= HWY_AVX3 ? 512 : target <= HWY_AVX2 ? 256 : 128;
    });
    for (const int levels : {1, 3, 7, 20, 127})
      for (const int64_t n : {1, 2, 7, 8, 31, 33, 63, 64, 65, 255, 257, 2047, 2048, 2049, 4999}) {
        const int width = level_bits(levels);
        const BlockRng rng{{6, 2, static_cast<uint32_t>(Purpose::gradient_code), 3}, 10007};
        const float factor = 0.4f * static_cast<float>(levels);
        for (const bool random : {true, false}) {
          std::vector<uint32_t> words(static_cast<size_t>(level_words(n, width)) + 1, 0xDEADBEEF);
          encode_levels(x.data(), n, factor, levels, random ? &rng : nullptr, words.data());
          EXPECT_EQ(words.back(), 0xDEADBEEF);
          if (const int64_t used = n * width % 32; used > 0) {
            EXPECT_EQ(words[words.size() - 2] >> used, 0) << n << " values: unused bits must be 0";
          }
          Values back(static_cast<size_t>(n));
          decode_levels(words.data(), n, 0.5f, levels, back.data());
          for (size_t i = 0; i < back.size(); ++i) {
            const float u = to_unit(random_word(6, 10007 + static_cast<int64_t>(i), 2, Purpose::gradient_code, 3));
            const float expected = random ? level(x[i], factor, levels, u)
                                          : std::clamp(std::nearbyint(x[i] * factor), -static_cast<float>(levels),
                                                       static_cast<float>(levels));
            ASSERT_EQ(back[i], expected * 0.5f) << i << " of " << n << ", " << levels << " levels";
            const size_t at = i * static_cast<size_t>(width);
            const uint32_t mask = width == 32 ? ~0u : (1u << width) - 1;
            ASSERT_EQ(words[at / 32] >> (at % 32) & mask, static_cast<uint32_t>(static_cast<int>(expected)) & mask);
          }
        }
      }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Levels, TinyScalesSendZerosAndLargeValuesAreClamped) {
  const Values tiny{1e-40f, -3e-45f, 0};
  uint32_t code[3] = {9, 9, 9};
  encode_scaled(tiny.data(), 3, 1e-40f, 127, nullptr, code);
  Values back(3, 5);
  decode_scaled(code, 3, 127, back.data());
  EXPECT_EQ(back, Values(3, 0));
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    for (const float size : {1e6f, 1.3e7f, 2e7f, 2147483648.0f, 5e9f, 3e38f}) {
      const Values huge{size, -size, 1};
      for (const bool random : {false, true}) {
        const BlockRng rng{};
        encode_scaled(huge.data(), 3, 1, 7, random ? &rng : nullptr, code);
        decode_scaled(code, 3, 7, back.data());
        EXPECT_EQ(back, (Values{1, -1, 1})) << size;
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(BlockExchange, QsgdRefusesANormBeyondFloat32) {
  const Values large{3e38f, 3e38f};
  uint32_t code[2];
  const auto compressor = qsgd_compressor(7);
  EXPECT_NE(error_of([&] { compressor->encode(large.data(), 2, {}, code); }).find("overflows float32"),
            std::string::npos);
  EXPECT_NE(error_of([&] { compressor->encode_finite(large.data(), 2, {}, code); }).find("overflows float32"),
            std::string::npos);
}

}  // namespace block_exchange_test
}  // namespace godwit
