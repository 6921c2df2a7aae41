#include "comm/compress/wire/sign_bits.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/context.h"
#include "tests/comm/table.h"
#include "tests/every_target.h"

namespace godwit {
namespace sign_bits_test {

using test::random_row;

const int64_t kSizes[] = {0, 1, 31, 32, 33, 511, 512, 1000, 1023, 1 << 20};

std::vector<uint32_t> random_words(uint64_t seed, int64_t count) {
  RandomStream random(seed, Purpose::test);
  std::vector<uint32_t> words(static_cast<size_t>(count));
  for (uint32_t& word : words) word = random.next();
  return words;
}

class SignBitsOn : public OnEveryTarget {};
GODWIT_EVERY_TARGET(SignBitsOn);

int bit(const uint32_t* words, int64_t j) { return static_cast<int>(words[j / 32] >> (j % 32) & 1); }

TEST_P(SignBitsOn, PackPutsValueJAtBitJ) {
  for (int64_t n : kSizes) {
    const std::vector<float> x = random_row<float>(1, 0, n);
    std::vector<uint32_t> words(static_cast<size_t>(sign_words(n) + 1), 0xabcdef01u);
    pack_signs(Cpu{}, x.data(), words.data(), n);
    for (int64_t j = 0; j < n; ++j) ASSERT_EQ(bit(words.data(), j), x[static_cast<size_t>(j)] >= 0) << j << " of " << n;
    for (int64_t j = n; j < 32 * sign_words(n); ++j) ASSERT_EQ(bit(words.data(), j), 0) << "unused bits must be 0";
    EXPECT_EQ(words.back(), 0xabcdef01u) << "wrote past the words";
  }
}

TEST_P(SignBitsOn, ZerosArePlusAndNanIsMinus) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<float> pattern{0.0f, -0.0f, nan, -nan, inf, -inf, 1e-45f, -1e-45f};
  for (int64_t n : {8, 40}) {  // the scalar remainder, and a full word
    std::vector<float> x;
    for (int64_t j = 0; j < n; ++j) x.push_back(pattern[static_cast<size_t>(j % 8)]);
    std::vector<uint32_t> words(static_cast<size_t>(sign_words(n)));
    pack_signs(Cpu{}, x.data(), words.data(), n);
    for (int64_t j = 0; j < n; ++j) EXPECT_EQ(bit(words.data(), j), 0b01010011 >> (j % 8) & 1) << j;
  }
}

TEST_P(SignBitsOn, UnpackInvertsPack) {
  for (int64_t n : kSizes) {
    const std::vector<uint32_t> words = random_words(2, sign_words(n));
    std::vector<float> x(static_cast<size_t>(n + 1), 7.0f);
    unpack_signs(Cpu{}, words.data(), x.data(), n);
    EXPECT_EQ(x.back(), 7.0f) << "wrote past the values";
    for (int64_t j = 0; j < n; ++j) ASSERT_EQ(x[static_cast<size_t>(j)], bit(words.data(), j) ? 1.0f : -1.0f);
    std::vector<uint32_t> again(words.size());
    pack_signs(Cpu{}, x.data(), again.data(), n);
    for (int64_t j = 0; j < n; ++j) ASSERT_EQ(bit(again.data(), j), bit(words.data(), j));
  }
}

void check_sum(int64_t senders, int64_t n, const std::vector<uint32_t>& words) {
  std::vector<int16_t> sum(static_cast<size_t>(n + 1), 12345);
  sum_signs(Cpu{}, words.data(), senders, sum.data(), n);
  EXPECT_EQ(sum.back(), 12345) << "wrote past the sums";
  for (int64_t j = 0; j < n; ++j) {
    int expected = 0;
    for (int64_t s = 0; s < senders; ++s) expected += bit(words.data() + s * sign_words(n), j) ? 1 : -1;
    ASSERT_EQ(sum[static_cast<size_t>(j)], expected) << "value " << j << " of " << n << ", " << senders << " senders";
  }
}

TEST_P(SignBitsOn, SumCountsAllSenders) {
  for (int64_t senders : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 64, 127, 128, 300})
    for (int64_t n : {0, 1, 31, 32, 33, 511, 513, 1000, 5000})
      check_sum(senders, n, random_words(3, senders * sign_words(n)));
  check_sum(8, 1 << 20, random_words(4, 8 * sign_words(1 << 20)));
}

TEST_P(SignBitsOn, SumsOfEqualSigns) {
  for (int64_t senders : {1, 2, 8, 127, 128, 255, 256, 4096, 32767})
    for (uint32_t word : {0u, ~0u})
      check_sum(senders, 70, std::vector<uint32_t>(static_cast<size_t>(senders * sign_words(70)), word));
}

TEST(SignBits, RefusesTooManySenders) {
  EXPECT_THROW(sum_signs(Cpu{}, nullptr, 0, nullptr, 0), Error);
  EXPECT_THROW(sum_signs(Cpu{}, nullptr, 32768, nullptr, 0), Error);
}

TEST(SignBits, SameOnAnyThreadCount) {
  const int64_t n = 1000003, senders = 5;
  const std::vector<uint32_t> words = random_words(5, senders * sign_words(n));
  std::vector<std::vector<int16_t>> sums;
  for (int threads : {1, 3, 8}) {
    const ContextGuard guard([&](Context& next) { next.threads = threads; });
    sums.emplace_back(static_cast<size_t>(n));
    sum_signs(Cpu{}, words.data(), senders, sums.back().data(), n);
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

}  // namespace sign_bits_test
}  // namespace godwit
