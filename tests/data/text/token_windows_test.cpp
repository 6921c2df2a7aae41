#include "data/text/token_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support.h"

namespace godwit::data {
namespace token_windows_test {

using testing::ElementsAre, testing::HasSubstr;

std::vector<int32_t> counting(int64_t n) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(TokenWindows, TrainingStreamsAreConsecutiveParts) {
  const std::vector<int32_t> tokens = counting(23);  // three parts of 7 tokens; two tokens are dropped
  TokenWindows windows(tokens, {.length = 4, .streams = 3});
  EXPECT_EQ(windows.windows(), 2);
  EXPECT_EQ(windows.predictions(), 18);
  for (int pass = 0; pass < 2; ++pass) {
    windows.start();
    const auto first = windows.next(), second = windows.next();
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->ids.shape(), (Shape{4, 3}));
    EXPECT_THAT(first->ids.to_vector<int32_t>(), ElementsAre(0, 7, 14, 1, 8, 15, 2, 9, 16, 3, 10, 17));
    EXPECT_THAT(first->labels.to_vector<int32_t>(), ElementsAre(1, 8, 15, 2, 9, 16, 3, 10, 17, 4, 11, 18));
    EXPECT_EQ(first->predictions, 12);
    EXPECT_THAT(second->ids.to_vector<int32_t>(), ElementsAre(4, 11, 18, 5, 12, 19));
    EXPECT_THAT(second->labels.to_vector<int32_t>(), ElementsAre(5, 12, 19, 6, 13, 20));
    EXPECT_FALSE(windows.next());
  }
}

// Two ranks with B streams have the streams of one rank with 2B.
TEST(TokenWindows, RanksShareTheStreams) {
  const std::vector<int32_t> tokens = counting(101);
  TokenWindows whole(tokens, {.length = 5, .streams = 6});
  TokenWindows left(tokens, {.length = 5, .streams = 3, .rank = 0, .world = 2});
  TokenWindows right(tokens, {.length = 5, .streams = 3, .rank = 1, .world = 2});
  EXPECT_EQ(left.windows(), whole.windows());
  EXPECT_EQ(right.windows(), whole.windows());
  while (const auto all = whole.next()) {
    const auto a = left.next(), b = right.next();
    ASSERT_TRUE(a && b);
    for (int64_t t = 0; t < all->ids.dim(0); ++t)
      for (int64_t s = 0; s < 6; ++s)
        EXPECT_EQ(all->ids.data<int32_t>()[t * 6 + s], (s < 3 ? a : b)->ids.data<int32_t>()[t * 3 + s % 3]);
  }
}

TEST(TokenWindows, EvaluationPredictsEveryTokenButTheFirstOnce) {
  for (const int64_t count : {2, 3, 7, 50, 101})
    for (const int64_t streams : {1, 4, 10})
      for (const int world : {1, 2, 3}) {
        const std::vector<int32_t> tokens = counting(count);
        std::vector<int32_t> predicted;
        int64_t announced = 0;
        for (int rank = 0; rank < world; ++rank) {
          TokenWindows windows(
              tokens, {.length = 6, .streams = streams, .rank = rank, .world = world, .train = false});
          announced += windows.predictions();
          while (const auto window = windows.next()) {
            int64_t seen = 0;
            for (int64_t i = 0; i < window->labels.numel(); ++i) {
              const int32_t label = window->labels.data<int32_t>()[i];
              if (label == kNoLabel) continue;
              EXPECT_EQ(window->ids.data<int32_t>()[i] + 1, label);
              predicted.push_back(label);
              ++seen;
            }
            EXPECT_EQ(window->predictions, seen);
          }
        }
        std::sort(predicted.begin(), predicted.end());
        std::vector<int32_t> expected = counting(count);
        expected.erase(expected.begin());
        EXPECT_EQ(predicted, expected) << count << " tokens, " << streams << " streams, " << world << " ranks";
        EXPECT_EQ(announced, count - 1);
      }
}

TEST(TokenWindows, RefusesTextsThatAreTooShort) {
  const std::vector<int32_t> tokens = counting(40);
  EXPECT_EQ(error_of([&] { TokenWindows(tokens, {.length = 10, .streams = 2, .world = 2}); }),
            "the text has 40 tokens, 10 for each of 4 streams (2 workers × 2); a window of 10 tokens needs 11");
  TokenWindows(tokens, {.length = 9, .streams = 2, .world = 2});
  EXPECT_THAT(error_of([&] { TokenWindows(tokens, {.length = 41, .streams = 1}); }), HasSubstr("1 worker × 1"));
  EXPECT_EQ(error_of([&] { TokenWindows(std::span(tokens).first(1), {.train = false}); }),
            "the text has 1 token; an evaluation needs 2");
  EXPECT_THAT(error_of([&] { TokenWindows(tokens, {.length = 0}); }), HasSubstr("at least 1"));
  EXPECT_THAT(error_of([&] { TokenWindows(tokens, {.rank = 2, .world = 2}); }), HasSubstr("rank 2"));
}

}  // namespace token_windows_test
}  // namespace godwit::data
