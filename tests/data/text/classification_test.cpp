#include "data/text/classification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/text/words.h"

namespace godwit::data {
namespace classification_test {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Classification, TokenizesAndTruncates) {
  const TsvDataset text{.sentences = {"w1 w2, w3", "\x01", "w4"}, .labels = {1, 0, 2}, .classes = {"a", "b", "c"}};
  const ClassificationDataset source(text, word_tokenizer(), {.length = 5});
  EXPECT_EQ(source.size(), 3);
  EXPECT_EQ(source.classes(), 3);
  EXPECT_EQ(source.cut(), 1);
  EXPECT_THAT(source.read(0, 0).ids, ElementsAre(2, 6, 7, kComma, 3));
  EXPECT_THAT(source.read(1, 0).ids, ElementsAre(2, 3)) << "the sentence has no tokens";
  EXPECT_THAT(source.read(2, 5).ids, ElementsAre(2, 9, 3));
  EXPECT_EQ(source.read(2, 5).label, 2);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(source.measure(i, 0).tokens, std::ssize(source.read(i, 0).ids));
    EXPECT_EQ(source.read(i, 0).first, std::ssize(source.read(i, 0).ids));
  }
}

TEST(Classification, HashDependsOnTheContentsAndNotOnThreads) {
  const TsvDataset text{.sentences = std::vector<std::string>(100, "w1 w2"),
                          .labels = std::vector<int32_t>(100, 1),
                          .classes = {"a", "b"}};
  const auto hash = [](const TsvDataset& of, int threads) {
    return ClassificationDataset(of, word_tokenizer(), {.threads = threads}).hash();
  };
  EXPECT_EQ(hash(text, 1), hash(text, 3));
  TsvDataset other = text;
  other.labels[7] = 0;
  EXPECT_NE(hash(other, 1), hash(text, 1));
  other = text;
  other.sentences[99] = "w1";
  EXPECT_NE(hash(other, 1), hash(text, 1));
}

TEST(Classification, RefusesALengthWithoutRoomForText) {
  const TsvDataset text{.sentences = {"w1"}, .labels = {0}, .classes = {"a"}};
  EXPECT_THAT(error_of([&] { ClassificationDataset(text, word_tokenizer(), {.length = 2}); }),
              HasSubstr("length of 2"));
}

}  // namespace classification_test
}  // namespace godwit::data
