#include "data/hold_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>

namespace godwit::data {
namespace hold_out_test {

TEST(HoldOut, TakesOneSampleOfEachGroupAndKeepsTheOrder) {
  std::vector<int> all(1003), labels(1003);
  std::iota(all.begin(), all.end(), 0);
  labels = all;
  const std::vector<int> whole = all, held = hold_out(all, 10);
  ASSERT_EQ(held.size(), 100u);
  std::array<int, 10> counts{};
  for (int group = 0; group < 100; ++group) {
    EXPECT_EQ(held[static_cast<size_t>(group)] / 10, group);
    ++counts[static_cast<size_t>(held[static_cast<size_t>(group)] % 10)];
  }
  EXPECT_THAT(counts, testing::Each(testing::AllOf(testing::Ge(2), testing::Le(20)))) << "random within the groups";
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  std::vector<int> together;
  std::merge(all.begin(), all.end(), held.begin(), held.end(), std::back_inserter(together));
  EXPECT_EQ(together, whole);
  EXPECT_EQ(hold_out(labels, 10), held) << "the same samples each time";
}

TEST(HoldOut, SamplesOfSeveralElementsStayTogether) {
  std::vector<std::string> pairs;
  std::vector<int> indices;
  for (int i = 0; i < 20; ++i)
    pairs.push_back(std::to_string(i)), pairs.push_back("of " + std::to_string(i)), indices.push_back(i);
  const std::vector<std::string> held = hold_out(pairs, 4, 2);
  const std::vector<int> which = hold_out(indices, 4);
  ASSERT_EQ(held.size(), 10u);
  for (size_t k = 0; k < 5; ++k) {
    EXPECT_EQ(held[2 * k], std::to_string(which[k]));
    EXPECT_EQ(held[2 * k + 1], "of " + held[2 * k]);
  }
  for (size_t k = 0; k < pairs.size(); k += 2) EXPECT_EQ(pairs[k + 1], "of " + pairs[k]);
}

TEST(HoldOut, RefusesTooFewSamples) {
  std::vector<int> all{1, 2, 3};
  EXPECT_THROW(hold_out(all, 4), Error);
  EXPECT_THROW(hold_out(all, 1), Error);
  EXPECT_EQ(all.size(), 3u);
}

}  // namespace hold_out_test
}  // namespace godwit::data
