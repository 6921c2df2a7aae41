#include "optim/kernels/birder_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <limits>

#include "engine/context.h"
#include "tests/optim/birder_reference.h"

namespace godwit {
namespace birder_kernels_test {

using birder::QuantizerRng;
using birder::Quantizer;

const std::vector<int64_t> kLengths{0, 1, 31, 32, 33, 1000, 1024, 1025, 4097};
const std::vector<int64_t> kBegins{0, 1, 2, 3, 1021, (int64_t{1} << 33) - 5};  // the last one is beyond 2³¹ counters

// Runs `body` once per instruction set of this machine, and once with the portable code.
template <class F>
void for_each_target(F body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

int64_t padded(int64_t count) { return (count + 31) / 32 * 32 + 64; }

// Gradients of many magnitudes, with zeros of both signs, subnormals and the largest finite value.
std::vector<float> gradients(int64_t count, uint32_t step) {
  RandomStream random(7, Purpose::test, step);
  std::vector<float> g(static_cast<size_t>(count));
  for (float& value : g) {
    value = static_cast<float>(random.normal() * std::pow(10, -8 * random.uniform()));
    switch (random.below(16)) {
      case 0:
        value = 0;
        break;
      case 1:
        value = -0.0f;
        break;
      case 2:
        value = 1e-41f;
        break;
      case 3:
        value = random.below(50) == 0 ? std::numeric_limits<float>::max() : value;
        break;
      default:
        break;
    }
  }
  return g;
}

struct Case {
  Quantizer quantizer;
  bool feedback;
  int64_t t0;
  int nodes = 1;
};
const std::vector<Case> kCases{{Quantizer::random, true, 0},
                               {Quantizer::random, false, 0},
                               {Quantizer::sign, true, 0},
                               {Quantizer::random, true, 2},
                               {Quantizer::random, true, 0, 5}};

// Every third value starts frozen.
std::vector<uint32_t> active_bits(size_t words) {
  std::vector<uint32_t> active(words);
  for (size_t i = 0; i < 32 * words; ++i)
    if (i % 3 != 1) reference::set_bit(active, static_cast<int64_t>(i), true);
  return active;
}

template <class Moment>
uint32_t bits(Moment x) {
  return std::bit_cast<uint32_t>(static_cast<float>(x));
}

// Runs four steps of one worker with the kernel and the reference, and compares every bit of state and words.
template <class Moment, class Error>
void compare_worker(const Case& c, bool masked, int64_t count, int64_t begin) {
  SCOPED_TRACE(testing::Message() << count << " values from element " << begin << ", " << sizeof(Moment)
                                  << " bytes a moment, " << sizeof(Error) << " an error" << (masked ? ", mask" : ""));
  const size_t n = static_cast<size_t>(padded(count));
  std::vector<Moment> m(n), b(n), b_hat(n);
  std::vector<Error> e(n);
  auto active = active_bits(n / 32);
  std::vector<reference::WorkerValue<float>> expected(static_cast<size_t>(count));
  reference::Options options{.feedback = c.feedback, .t0 = c.t0};
  options.bf16_moments = sizeof(Moment) == 2, options.int8_errors = sizeof(Error) == 1, options.nodes = c.nodes;
  for (uint32_t step = 1; step <= 4; ++step) {
    auto g = gradients(count, step);
    for (size_t i = 0; i < g.size(); ++i)
      if (i % 6 == 1) g[i] = 0;  // half of the frozen ones
    const QuantizerRng rng{c.quantizer, 0x123456789ABCDEFu, step, Purpose::worker_sign, 3, begin};
    std::vector<uint32_t> words(n / 32, 0xDEADBEEF), expected_words(n / 32);
    const birder::WorkerState<Moment, Error> state{m.data(), b.data(), c.t0 ? b_hat.data() : nullptr,
                                                   c.feedback ? e.data() : nullptr, masked ? active.data() : nullptr};
    ASSERT_TRUE(birder::worker_step(g.data(), state, words.data(), count, padded(count),
                                    {options.beta, options.o, options.eps, step > c.t0, c.nodes}, rng));
    for (int64_t i = 0; i < count; ++i) {
      const bool up = !masked || reference::bit(active, i);
      const auto [z, plus] = reference::worker_value(expected[static_cast<size_t>(i)], g[static_cast<size_t>(i)],
                                                     options, rng, begin + i, up);
      reference::set_bit(expected_words, i, plus);
    }
    ASSERT_EQ(words, expected_words);
    for (size_t i = 0; i < n; ++i) {
      const auto value = i < expected.size() ? expected[i] : reference::WorkerValue<float>{};
      const float error = sizeof(Error) == 1 ? static_cast<float>(e[i]) / 64 : static_cast<float>(e[i]);
      ASSERT_EQ(bits(m[i]), bits(value.m)) << i;
      ASSERT_EQ(bits(b[i]), bits(value.b)) << i;
      ASSERT_EQ(bits(error), bits(value.e)) << i;
      ASSERT_LE(std::abs(static_cast<float>(m[i])), static_cast<float>(b[i]));
      ASSERT_LE(std::abs(error), 2);
    }
    for (size_t w = 0; masked && step > 1 && w < active.size(); ++w) active[w] |= words[w];
  }
}

void compare_every_worker(const Case& c, int64_t count, int64_t begin) {
  for (const bool masked : {false, true}) {
    compare_worker<float, float>(c, masked, count, begin);
    compare_worker<float, int8_t>(c, masked, count, begin);
    compare_worker<bf16, float>(c, masked, count, begin);
    compare_worker<bf16, int8_t>(c, masked, count, begin);
  }
}

TEST(BirderKernels, WorkerStepEqualsScalarCodeBitForBit) {
  for_each_target([] {
    for (const Case& c : kCases) {
      for (const int64_t count : kLengths) compare_every_worker(c, count, 1021);
      for (const int64_t begin : kBegins) compare_every_worker(c, 1000, begin);
    }
  });
}

template <class Error>
void compare_server(Quantizer quantizer, bool feedback, bool masked, int senders, int64_t count, int64_t begin) {
  SCOPED_TRACE(testing::Message() << senders << " senders, " << count << " values from element " << begin << ", "
                                  << sizeof(Error) << " bytes per error" << (masked ? ", mask" : ""));
  const int64_t length = padded(count);
  const size_t n = static_cast<size_t>(length);
  std::vector<Error> e(n);
  std::vector<float> expected_e(n);
  const auto active = active_bits(n / 32);
  RandomStream random(8, Purpose::test);
  for (uint32_t step = 1; step <= 4; ++step) {
    const QuantizerRng rng{quantizer, 99, step, Purpose::server_sign, 0, begin};
    std::vector<uint32_t> words(n / 32 * static_cast<size_t>(senders)), out(n / 32, 0xDEADBEEF), expected(n / 32);
    for (uint32_t& word : words) word = random.next();
    birder::server_step(words.data(), senders, feedback ? e.data() : nullptr, masked ? active.data() : nullptr,
                        out.data(), count, length, rng);
    for (int64_t i = 0; i < count; ++i) {
      int sum = 0;
      for (int s = 0; s < senders; ++s) sum += reference::bit(words, s * length + i) ? 1 : -1;
      float& error = expected_e[static_cast<size_t>(i)];
      const float z = static_cast<float>(sum) / static_cast<float>(senders) + error;
      const bool up = !masked || reference::bit(active, i);
      const bool plus = up ? reference::quantize(z, rng, begin + i) : sum > -senders;
      if (feedback && up) error = z - (plus ? 1.0f : -1.0f);
      const uint32_t word = random_word(99, begin + i, step, Purpose::server_sign, 0);
      if (sizeof(Error) == 1) error = reference::kept_error(error, word);
      reference::set_bit(expected, i, plus);
    }
    ASSERT_EQ(out, expected);
    for (size_t i = 0; i < n; ++i)
      ASSERT_EQ(sizeof(Error) == 1 ? static_cast<float>(e[i]) / 64 : static_cast<float>(e[i]), expected_e[i]);
  }
}

TEST(BirderKernels, ServerStepEqualsScalarCodeBitForBit) {
  for_each_target([] {
    for (const int senders : {1, 2, 3, 8, 65})
      for (const bool masked : {false, true}) {
        for (const int64_t count : kLengths) {
          compare_server<float>(Quantizer::random, true, masked, senders, count, 5);
          compare_server<int8_t>(Quantizer::random, true, masked, senders, count, 5);
        }
        compare_server<float>(Quantizer::sign, true, masked, senders, 1000, 0);
        compare_server<int8_t>(Quantizer::sign, true, masked, senders, 1000, 0);
        compare_server<float>(Quantizer::random, false, masked, senders, 1000, 0);
      }
  });
}

TEST(BirderKernels, UpdateEqualsScalarCodeBitForBit) {
  for_each_target([] {
    RandomStream random(9, Purpose::test);
    std::vector<uint32_t> words(140);
    for (uint32_t& word : words) word = random.next();
    for (const int64_t begin : {0, 1, 31, 32, 77}) {
      for (const int64_t count : kLengths) {
        std::vector<float> x(words.size() * 32);
        for (float& value : x) value = static_cast<float>(random.normal());
        auto expected = x;
        const bool masked = count % 2 == 1;
        const auto active = active_bits(words.size());
        birder::update(x.data(), words.data(), masked ? active.data() : nullptr, begin, begin + count, 0.999f, 1e-3f);
        for (int64_t i = begin; i < begin + count; ++i) {
          float& value = expected[static_cast<size_t>(i)];
          if (!masked || reference::bit(active, i))
            value = (0.999f * value) - (reference::bit(words, i) ? 1e-3f : -1e-3f);
        }
        ASSERT_EQ(x, expected) << begin << " " << count;
      }
    }
  });
}

// Pitfall 26: sign(±0) is +1, and a non-finite value never becomes a sign.
TEST(BirderKernels, Pitfall26SignOfZeroAndOfNonFiniteValues) {
  for_each_target([] {
    for (const int64_t count : {40, 4097}) {
      const size_t n = static_cast<size_t>(padded(count));
      std::vector<float> g(n), m(n), b(n), e(n);
      std::vector<uint32_t> words(n / 32);
      const QuantizerRng rng{Quantizer::sign, 1, 1, Purpose::worker_sign, 0, 0};
      const auto run = [&] {
        return birder::worker_step(g.data(), birder::WorkerState<float, float>{m.data(), b.data(), nullptr, e.data()},
                                   words.data(), count, padded(count), {0.95f, 0.05f, 1e-8f, true}, rng);
      };
      std::fill(g.begin(), g.end(), -0.0f);
      EXPECT_TRUE(run());
      EXPECT_EQ(words[0], 0xFFFFFFFFu);
      for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
        for (const int64_t at : {int64_t{0}, int64_t{17}, count - 1}) {
          std::fill(m.begin(), m.end(), 0.0f);
          std::fill(g.begin(), g.end(), 1.0f);
          g[static_cast<size_t>(at)] = bad;
          EXPECT_FALSE(run()) << bad << " at " << at;
        }
      }
      std::fill(g.begin(), g.end(), std::numeric_limits<float>::max());
      g.back() = NAN;  // padding is not checked
      EXPECT_TRUE(run());
    }
  });
}

TEST(BirderKernels, ThreadCountDoesNotChangeABit) {
  const int64_t count = 200'001;
  const size_t n = static_cast<size_t>(padded(count));
  const auto g = gradients(count, 1);
  const auto run = [&](int threads) {
    const ContextGuard guard([&](Context& next) { next.threads = threads; });
    std::vector<float> m(n), b(n), e(n);
    std::vector<uint32_t> words(n / 32), agreed(n / 32);
    EXPECT_TRUE(birder::worker_step(g.data(), birder::WorkerState<float, float>{m.data(), b.data(), nullptr, e.data()},
                                    words.data(), count, padded(count), {0.95f, 0.05f, 1e-8f, true},
                                    {Quantizer::random, 5, 1, Purpose::worker_sign, 0, 7}));
    birder::server_step(words.data(), 1, e.data(), nullptr, agreed.data(), count, padded(count),
                        {Quantizer::random, 5, 1, Purpose::server_sign, 0, 7});
    words.insert(words.end(), agreed.begin(), agreed.end());
    for (const float value : e) words.push_back(std::bit_cast<uint32_t>(value));
    return words;
  };
  const auto one = run(1);
  for (const int threads : {2, 3, 5}) EXPECT_EQ(run(threads), one) << threads;
}

}  // namespace birder_kernels_test
}  // namespace godwit
