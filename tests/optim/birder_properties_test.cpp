// Properties of Birder over many steps, tested on the kernels: several senders and the server in one thread.
#include <gtest/gtest.h>

#include "tests/optim/birder_reference.h"

namespace godwit {
namespace birder_properties_test {

using birder::Quantizer;

template <class Moment = float, class Error = float>
class Parties {
 public:
  Parties(int senders, int64_t count, bool worker_feedback, bool server_feedback,
          Quantizer quantizer = Quantizer::random)
      : count_(count), padded_((count + 31) / 32 * 32), quantizer_(quantizer), server_feedback_(server_feedback) {
    const size_t n = static_cast<size_t>(padded_);
    for (int s = 0; s < senders; ++s) {
      g.emplace_back(n), m.emplace_back(n), b.emplace_back(n), e.emplace_back(worker_feedback ? n : 0);
    }
    server_e.resize(n), x.resize(n), agreed.resize(n / 32), words.resize(n / 32 * static_cast<size_t>(senders));
  }

  void step(float lr) {
    ++t_;
    for (size_t s = 0; s < g.size(); ++s) {
      ASSERT_TRUE(birder::worker_step(
          g[s].data(),
          birder::WorkerState<Moment, Error>{m[s].data(), b[s].data(), nullptr, e[s].empty() ? nullptr : e[s].data()},
          words.data() + s * agreed.size(), count_, padded_, {0.95f, 0.05f, 1e-8f, true, compensated},
          {quantizer_, 11, t_, Purpose::worker_sign, static_cast<uint32_t>(s), 0}));
    }
    birder::server_step(words.data(), static_cast<int>(g.size()), server_feedback_ ? server_e.data() : nullptr, nullptr,
                        agreed.data(), count_, padded_, {quantizer_, 11, t_, Purpose::server_sign, 0, 0});
    birder::update(x.data(), agreed.data(), nullptr, 0, count_, 1, lr);
  }

  std::vector<std::vector<float>> g;
  std::vector<std::vector<Moment>> m, b;
  std::vector<std::vector<Error>> e;
  std::vector<Error> server_e;
  std::vector<float> x;
  std::vector<uint32_t> words, agreed;
  int compensated = 1;  // WorkerSettings::nodes

 private:
  int64_t count_, padded_;
  Quantizer quantizer_;
  bool server_feedback_;
  uint32_t t_ = 0;
};

float largest(const std::vector<float>& values) {
  float result = 0;
  for (const float value : values) result = std::max(result, std::abs(value));
  return result;
}

// Gradients of mean 0.05 and deviation 1 at each of four nodes. The mean of the nodes' ratios is half as long as the
// ratio of the mean gradient, which SoftSignSGD uses. Compensation restores most of the length: the formula is exact
// for ratios without noise of their own.
TEST(BirderProperties, CompensationLengthensStepsTowardsThoseOfTheMeanGradient) {
  constexpr int kNodes = 4, kSteps = 400;
  constexpr int64_t kCount = 1000;
  for (const int compensated : {1, kNodes}) {
    Parties parties(kNodes, kCount, true, true);
    parties.compensated = compensated;
    RandomStream random(5, Purpose::test);
    std::vector<double> m(kCount), b(kCount);
    double mean_gradient_path = 0, path = 0;
    for (int t = 0; t < kSteps; ++t) {
      for (size_t j = 0; j < kCount; ++j) {
        double mean = 0;
        for (auto& g : parties.g) {
          g[j] = static_cast<float>(0.05 + random.normal());
          mean += static_cast<double>(g[j]) / kNodes;
        }
        m[j] = 0.95 * m[j] + 0.05 * mean;
        b[j] = 0.95 * b[j] + 0.05 * std::abs(mean);
        mean_gradient_path -= m[j] / b[j];
      }
      parties.step(1);
    }
    for (const float x : parties.x) path += static_cast<double>(x);
    const double length = path / mean_gradient_path;
    if (compensated == 1) EXPECT_NEAR(length, 0.52, 0.04);
    else EXPECT_NEAR(length, 0.86, 0.04);
  }
}

// Pitfall 2: r + e often leaves [−1, 1]. The probability p is clamped, but the error is not. Errors therefore stay
// bounded, and the sum of all signs sent follows the sum of all ratios.
TEST(BirderProperties, Pitfall2ErrorsStayBoundedOutsideTheUnitInterval) {
  for (const int senders : {2, 3, 8}) {
    const int64_t count = 512;
    Parties<> parties(senders, count, true, true);
    RandomStream random(1, Purpose::test);
    std::vector<std::vector<double>> ratios(parties.g.size(), std::vector<double>(static_cast<size_t>(count)));
    auto signs = ratios;
    int64_t outside = 0, all = 0;
    float worker_largest = 0, server_largest = 0;
    for (int t = 1; t <= 1000; ++t) {
      for (auto& g : parties.g) {
        for (size_t j = 0; j < static_cast<size_t>(count); ++j) {
          // One quarter each: white-noise, drifting, alternating and mostly zero gradients.
          const float noise = random.uniform() - 0.5f;
          g[j] = j % 4 == 0   ? noise
                 : j % 4 == 1 ? noise + 0.3f
                 : j % 4 == 2 ? (t % 2 ? 1.0f : -1.0f)
                 : t % 50     ? 0
                              : noise;
        }
      }
      const auto before = parties.e;
      parties.step(1e-3f);
      for (size_t s = 0; s < parties.g.size(); ++s) {
        for (size_t j = 0; j < static_cast<size_t>(count); ++j) {
          const float ratio = parties.m[s][j] / (parties.b[s][j] + 1e-8f);
          outside += std::abs(ratio + before[s][j]) > 1;
          ++all;
          ratios[s][j] += ratio;
          signs[s][j] +=
              reference::bit(parties.words, static_cast<int64_t>(s) * count + static_cast<int64_t>(j)) ? 1 : -1;
        }
        worker_largest = std::max(worker_largest, largest(parties.e[s]));
      }
      server_largest = std::max(server_largest, largest(parties.server_e));
    }
    EXPECT_GT(static_cast<double>(outside) / static_cast<double>(all), 0.1) << "too few values to test clamping";
    EXPECT_GT(worker_largest, 1);
    EXPECT_LE(worker_largest, 2);
    EXPECT_LE(server_largest, 2 - 2.0 / senders + 1e-4);  // 1000 roundings of values below 2
    for (size_t s = 0; s < parties.g.size(); ++s) {
      for (size_t j = 0; j < static_cast<size_t>(count); ++j) {
        EXPECT_NEAR(ratios[s][j], signs[s][j], 2 + 1e-3);
      }
    }
  }
}

// State of 5 bytes: |m| ≤ b after any rounding, |e| ≤ 2, and the signs still follow the ratios. Rounding is unbiased
// even for ratios below half a step of e, which round-to-nearest would lose (here a constant 0.004, with steps of
// 1/64).
TEST(BirderProperties, ShortStateStaysBoundedAndUnbiased) {
  const int64_t count = 512, steps = 4000;
  Parties<bf16, int8_t> parties(1, count, true, false);
  RandomStream random(2, Purpose::test);
  std::vector<double> ratios(static_cast<size_t>(count)), signs(ratios.size());
  for (int64_t t = 1; t <= steps; ++t) {
    for (size_t j = 0; j < ratios.size(); ++j)
      parties.g[0][j] = j % 2 ? (random.uniform() < 0.502f ? 1.0f : -1.0f) : random.uniform() - 0.4f;
    const auto m = parties.m[0], b = parties.b[0];
    parties.step(1e-3f);
    for (size_t j = 0; j < ratios.size(); ++j) {
      ASSERT_LE(std::abs(static_cast<float>(parties.m[0][j])), static_cast<float>(parties.b[0][j]));
      const float g = parties.g[0][j];
      ratios[j] += ((0.95f * m[j]) + (0.05f * g)) / (((0.95f * b[j]) + (0.05f * std::abs(g))) + 1e-8f);
      signs[j] += reference::bit(parties.words, static_cast<int64_t>(j)) ? 1 : -1;
    }
  }
  // Each step rounds e by at most 1/64 with mean 0. The standard deviation after 4000 steps is about 1/64·√4000·½ =
  // 0.5; the largest of 512 values reaches 4 times that.
  double mean = 0;
  for (size_t j = 0; j < ratios.size(); ++j) {
    EXPECT_NEAR(ratios[j], signs[j], 2 + 4 * 0.5);
    mean += (ratios[j] - signs[j]) / static_cast<double>(count);
  }
  EXPECT_NEAR(mean, 0, 4 * 1.2 / std::sqrt(512.0)) << "no drift: values of e are independent and of magnitude about 1";
}

// Pitfall 3: with error feedback on both sides, a parameter whose gradient is always 0 stays near its value. Without
// feedback it performs a random walk.
TEST(BirderProperties, Pitfall3ParametersWithoutGradientStay) {
  const float alpha = 1.0f / 1024;  // makes sums exact
  for (const int senders : {1, 2, 3, 8}) {
    Parties<> both(senders, 64, true, true), none(senders, 64, false, false);
    Parties<bf16, int8_t> kept_short(senders, 64, true, true);
    float farthest = 0, farthest_short = 0;
    for (int t = 1; t <= 20'000; ++t) {
      both.step(alpha);
      none.step(alpha);
      kept_short.step(alpha);
      farthest = std::max(farthest, largest(both.x));
      farthest_short = std::max(farthest_short, largest(kept_short.x));
    }
    EXPECT_LE(farthest, 4 * alpha) << senders;
    // Means of three signs are not multiples of 1/64; rounding of ē has a standard deviation of √20000·0.47/64 = 1.04
    // α.
    EXPECT_LE(farthest_short, (senders == 3 ? 4 + 4 * 1.04f : 4) * alpha) << senders;
    EXPECT_GT(largest(none.x), 100 * alpha) << senders << ": 64 random walks of 20000 steps reach about 350 α";
  }
}

TEST(BirderProperties, SignQuantizerRequiresWorkerFeedback) {
  const float alpha = 1.0f / 1024;
  Parties<> fed(2, 64, true, true, Quantizer::sign), unfed(2, 64, false, false, Quantizer::sign);
  for (int t = 1; t <= 1000; ++t) {
    fed.step(alpha);
    unfed.step(alpha);
    EXPECT_LE(largest(fed.e[0]), 1) << "deterministic signs keep the error within 1";
  }
  EXPECT_LE(largest(fed.x), 4 * alpha);
  EXPECT_EQ(unfed.x[0], -1000 * alpha) << "drifts without feedback, so Birder::Options::check() refuses it";
}

// Pitfall 4: 0/0 is 0, and the first nonzero gradient gives a full step at any magnitude.
TEST(BirderProperties, Pitfall4ZeroGradientAndFirstNonzeroGradient) {
  Parties<> parties(1, 64, true, true);
  parties.step(0.1f);
  EXPECT_EQ(largest(parties.m[0]), 0);
  EXPECT_EQ(largest(parties.e[0]), 1) << "e = 0 − u";
  Parties<> touched(1, 64, true, true);
  for (size_t j = 0; j < 64; ++j) touched.g[0][j] = j % 2 ? 1e-3f : -1e3f;
  touched.step(0.125f);
  for (size_t j = 0; j < 64; ++j) {
    EXPECT_EQ(touched.x[j], j % 2 ? -0.125f : 0.125f);
    EXPECT_LE(std::abs(touched.e[0][j]), 1e-3) << "r is ±1 up to ε";
  }
}

// Pitfall 27: the server's sum is an integer, so the order of the senders does not matter.
TEST(BirderProperties, Pitfall27OrderOfSendersDoesNotMatter) {
  const int64_t count = 1000, length = 1024;
  for (const int senders : {2, 3, 7, 8}) {
    std::vector<uint32_t> words(static_cast<size_t>(senders * length / 32)), out(length / 32), turned_out(length / 32);
    std::vector<float> e(length), turned_e(length);
    RandomStream random(4, Purpose::test);
    for (uint32_t t = 1; t <= 20; ++t) {
      for (uint32_t& word : words) word = random.next();
      auto turned = words;
      std::rotate(turned.begin(), turned.begin() + length / 32, turned.end());
      const birder::QuantizerRng rng{Quantizer::random, 6, t, Purpose::server_sign, 0, 3};
      birder::server_step(words.data(), senders, e.data(), nullptr, out.data(), count, length, rng);
      birder::server_step(turned.data(), senders, turned_e.data(), nullptr, turned_out.data(), count, length, rng);
      EXPECT_EQ(out, turned_out);
      EXPECT_EQ(e, turned_e);
    }
  }
}

// Pitfall 15: signs are unbiased. Signs of two senders, of two steps, and of worker and server are independent.
TEST(BirderProperties, Pitfall15SignsAreUnbiasedAndUncorrelated) {
  const int64_t count = 1 << 16;
  const double four_sigma = 4 / std::sqrt(static_cast<double>(count));
  const auto signs = [&](float ratio, uint32_t step, Purpose purpose, uint32_t sender) {
    std::vector<float> g(count, ratio), m(count), b(count, 1.0f);  // β = 0: m = g; b̂ = |g|, so b stays at 1
    std::vector<float> b_hat(count);
    std::vector<uint32_t> words(count / 32);
    EXPECT_TRUE(birder::worker_step(
        g.data(), birder::WorkerState<float, float>{m.data(), b.data(), b_hat.data(), nullptr}, words.data(), count,
        count, {0, 1, 1e-8f, true}, {Quantizer::random, 5, step, purpose, sender, 0}));
    return words;
  };
  const auto mean = [&](const std::vector<uint32_t>& words) {
    int64_t plus = 0;
    for (const uint32_t word : words) plus += std::popcount(word);
    return 2.0 * static_cast<double>(plus) / static_cast<double>(count) - 1;
  };
  for (const float ratio : {-1.0f, -0.75f, -0.1f, 0.0f, 0.3f, 1.0f}) {
    EXPECT_NEAR(mean(signs(ratio, 1, Purpose::worker_sign, 0)), ratio, four_sigma);
  }
  const auto base = signs(0, 1, Purpose::worker_sign, 0);
  for (auto other : {signs(0, 1, Purpose::worker_sign, 1), signs(0, 2, Purpose::worker_sign, 0),
                     signs(0, 1, Purpose::server_sign, 0)}) {
    for (size_t i = 0; i < base.size(); ++i) other[i] = ~(other[i] ^ base[i]);  // 1 where both agree
    EXPECT_NEAR(mean(other), 0, four_sigma);
  }
}

}  // namespace birder_properties_test
}  // namespace godwit
