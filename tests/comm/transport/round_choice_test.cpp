#include "comm/transport/round_choice.h"

#include <gtest/gtest.h>

namespace godwit {
namespace round_choice_test {

// Calls until the trials of a size end; one round takes `one` seconds, two rounds `two`.
std::array<double, 2> tried(RoundChoice& choice, int64_t bytes, double one, double two) {
  for (int call = 1;; ++call) {
    const double delay = call % 7 < 2 ? 10 : 0;  // occasional delay of the whole host
    if (const auto medians = choice.finished(bytes, delay + (choice.one_round(bytes) ? one : two))) {
      EXPECT_EQ(call, 2 * RoundChoice::kTrials);
      return *medians;
    }
  }
}

TEST(RoundChoice, FewBytesTakeOneRoundAndManyTakeTwo) {
  RoundChoice choice;
  for (int call = 0; call < 20; ++call) {
    EXPECT_TRUE(choice.one_round(8 << 10));
    EXPECT_FALSE(choice.one_round((64 << 10) + 4));
    EXPECT_FALSE(choice.finished(8 << 10, 1) || choice.finished((64 << 10) + 4, 1));
  }
}

TEST(RoundChoice, KeepsTheFasterForEachSize) {
  RoundChoice choice;
  for (const auto& [bytes, one, two] : {std::tuple{16 << 10, 0.5, 0.75}, {64 << 10, 2.0, 1.0}}) {
    const std::array<double, 2> medians = tried(choice, bytes, one, two);
    EXPECT_EQ(medians, (std::array{one, two}));
    EXPECT_FALSE(choice.finished(bytes, 1)) << "the exchange of the medians may have the same size";
    choice.decide(bytes, medians);
    EXPECT_EQ(choice.one_round(bytes), one < two);
    EXPECT_EQ(choice.one_round(bytes - 4), one < two) << "of the same size";
    EXPECT_FALSE(choice.finished(bytes, 100)) << "later calls change nothing";
  }
  EXPECT_TRUE(choice.one_round((8 << 10) + 4)) << "within 16 KiB";
  EXPECT_TRUE(choice.one_round((16 << 10) + 4)) << "another size, not tried yet";
}

}  // namespace round_choice_test
}  // namespace godwit
