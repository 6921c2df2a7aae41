#include "comm/compress/wire/scaled_signs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/comm/exchange/sign_server.h"
#include "tests/comm/table.h"
#include "tests/every_target.h"

namespace godwit {
namespace scaled_signs_test {

using test::random_row;
using Values = std::vector<float>;

class ScaledSignsOn : public OnEveryTarget {};
GODWIT_EVERY_TARGET(ScaledSignsOn);

// A message of n values in blocks: scales, then `gap` unrelated bits, then signs.
struct Layout {
  Layout(int64_t values, int64_t block, int64_t gap)
      : n(values), size(block), first(32 * ((n + size - 1) / size) + gap) {
    for (int64_t at = 0; at < n; at += size) tiles.add(at, std::min(size, n - at), first + at, at / size, at / size);
  }
  int64_t words() const { return (first + n + 31) / 32; }
  bool sign(const uint32_t* message, int64_t i) const { return message[(first + i) / 32] >> ((first + i) % 32) & 1; }
  float value(const uint32_t* message, int64_t i) const {
    const float scale = std::bit_cast<float>(message[i / size]);
    return sign(message, i) ? scale : -scale;
  }

  int64_t n, size, first;
  SignTiles tiles;
};

// The residual e after compressing y, computed by scalar code.
Values expected_errors(const Layout& layout, Values y, SignScale kind, const std::vector<uint32_t>& words) {
  for (int64_t at = 0; at < layout.n; at += layout.size) {
    const int64_t count = std::min(layout.size, layout.n - at);
    double sum = 0;
    reference::add_sizes(y.data() + at, count, kind == SignScale::l2_rms, sum);
    const double mean = sum / static_cast<double>(count);
    const auto scale = static_cast<float>(kind == SignScale::l2_rms ? std::sqrt(mean) : mean);
    EXPECT_EQ(std::bit_cast<float>(words[static_cast<size_t>(at / layout.size)]), scale);
    const uint32_t* message = words.data();
    float* values = y.data();
    for (int64_t i = at; i < at + count; ++i) {
      const bool plus = values[i] >= 0;
      if (layout.sign(message, i) != plus) ADD_FAILURE() << "the sign of value " << i << " is wrong";
      values[i] -= plus ? scale : -scale;
    }
  }
  return y;
}

void check(const Layout& layout, int senders, SignScale kind) {
  const auto n = static_cast<size_t>(layout.n);
  Values e = random_row<float>(3, 0, layout.n), out(n), expected(n);
  std::vector<uint32_t> messages;
  for (int s = 0; s < senders; ++s) {
    const Values x = random_row<float>(4, s, layout.n);
    Values y(n);
    for (size_t i = 0; i < n; ++i) y[i] = x[i] + e[i];
    std::vector<uint32_t> words(static_cast<size_t>(layout.words()));
    ASSERT_EQ(first_fault(compress_signs(Cpu{}, x.data(), e.data(), layout.tiles, kind, words.data())), -1);
    ASSERT_EQ(e, expected_errors(layout, y, kind, words));
    expand_signs(Cpu{}, words.data(), layout.tiles, out.data());
    for (int64_t i = 0; i < layout.n; ++i) expected[static_cast<size_t>(i)] = layout.value(words.data(), i);
    ASSERT_EQ(out, expected);
    messages.insert(messages.end(), words.begin(), words.end());
  }
  Values y(n);
  for (size_t i = 0; i < n; ++i) {
    for (int s = 0; s < senders; ++s)
      y[i] += layout.value(messages.data() + s * layout.words(), static_cast<int64_t>(i));
    y[i] = y[i] / static_cast<float>(senders) + e[i];
  }
  std::vector<uint32_t> words(static_cast<size_t>(layout.words()));
  ASSERT_EQ(first_fault(compress_mean_of_signs(Cpu{}, messages.data(), senders, layout.words(), e.data(), layout.tiles,
                                               kind, words.data())),
            -1);
  ASSERT_EQ(e, expected_errors(layout, y, kind, words));
}

TEST_P(ScaledSignsOn, WorkerAndServerMatchScalarCode) {
  for (const int64_t n : {1, 31, 32, 33, 100, 4096, 4097, 9000})
    for (const int64_t block : {int64_t{100}, int64_t{4096}, n})
      for (const int64_t gap : {0, 5, 32})
        for (const int senders : {1, 2, 3, 8, 9})
          check(Layout(n, block, gap), senders, senders % 2 ? SignScale::l1_mean : SignScale::l2_rms);
}

TEST_P(ScaledSignsOn, NamesTheNonFiniteBlock) {
  const Layout layout(300, 100, 0);
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    Values x(300, 1.0f), e(300);
    x[150] = x[250] = bad;
    std::vector<uint32_t> words(static_cast<size_t>(layout.words()));
    EXPECT_EQ(first_fault(compress_signs(Cpu{}, x.data(), e.data(), layout.tiles, SignScale::l1_mean, words.data())),
              100);
  }
}

}  // namespace scaled_signs_test
}  // namespace godwit
