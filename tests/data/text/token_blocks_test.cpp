#include "data/text/token_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/support.h"

namespace godwit::data {
namespace token_blocks_test {

using testing::ElementsAre, testing::HasSubstr;

TokenStream counting(int64_t n) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return TokenStream(tokens);
}

std::vector<std::vector<int32_t>> batches(TokenBlocks& blocks, int64_t epoch, int64_t first = 0) {
  std::vector<std::vector<int32_t>> all;
  blocks.start_epoch(epoch, first);
  while (const auto batch = blocks.next()) {
    all.push_back(batch->ids.to_vector<int32_t>());
    std::vector<int32_t> next = all.back();
    for (int32_t& id : next) ++id;
    EXPECT_EQ(batch->labels.to_vector<int32_t>(), next);
    EXPECT_EQ(batch->predictions, std::ssize(next));
  }
  return all;
}

// The tokens of all ranks in an epoch.
std::multiset<int32_t> epoch_of(const TokenStream& tokens, int world, int64_t batch, int64_t epoch) {
  std::multiset<int32_t> seen;
  for (int rank = 0; rank < world; ++rank) {
    TokenBlocks blocks(tokens, {.context = 8, .batch = batch, .rank = rank, .world = world, .seed = 3});
    for (const auto& ids : batches(blocks, epoch)) seen.insert(ids.begin(), ids.end());
  }
  return seen;
}

TEST(TokenBlocks, AnEpochUsesEachTokenOnce) {
  const TokenStream tokens = counting(8 * 25 + 3);
  for (const auto& [world, batch] : {std::pair(1, 1), std::pair(4, 3), std::pair(2, 6)}) {
    const std::multiset<int32_t> seen = epoch_of(tokens, world, batch, 0);
    EXPECT_EQ(seen.size(), 8 * 24);
    EXPECT_EQ(std::set<int32_t>(seen.begin(), seen.end()).size(), seen.size());
    EXPECT_EQ(seen, epoch_of(tokens, 1, 1, 0)) << "the same blocks for any number of workers";
  }
}

TEST(TokenBlocks, EpochsDifferInOrderAndOffset) {
  const TokenStream tokens = counting(2000);
  TokenBlocks blocks(tokens, {.context = 8, .batch = 2, .seed = 1});
  std::set<int32_t> offsets;
  for (int64_t epoch = 0; epoch < 40; ++epoch) offsets.insert(batches(blocks, epoch)[0][0] % 8);
  EXPECT_EQ(offsets.size(), 8);
  EXPECT_NE(batches(blocks, 0), batches(blocks, 1));
  EXPECT_EQ(batches(blocks, 0), batches(blocks, 0));
}

TEST(TokenBlocks, ResumesAtAnyBatch) {
  const TokenStream tokens = counting(500);
  TokenBlocks blocks(tokens, {.context = 8, .batch = 4, .rank = 1, .world = 2});
  const auto all = batches(blocks, 7);
  ASSERT_EQ(std::ssize(all), blocks.batches());
  EXPECT_EQ(batches(blocks, 7, 3), std::vector(all.begin() + 3, all.end()));
  EXPECT_TRUE(batches(blocks, 7, blocks.batches()).empty());
}

TEST(TokenBlocks, AnEvaluationPredictsEveryTokenButTheFirst) {
  for (const int world : {1, 3}) {
    std::vector<int32_t> labels;
    int64_t predictions = 0;
    for (int rank = 0; rank < world; ++rank) {
      TokenBlocks blocks(counting(30), {.context = 8, .batch = 2, .rank = rank, .world = world, .train = false});
      while (const auto batch = blocks.next()) {
        predictions += batch->predictions;
        for (const int32_t label : batch->labels.to_vector<int32_t>())
          if (label != kNoLabel) labels.push_back(label);
      }
    }
    std::vector<int32_t> expected(29);
    std::iota(expected.begin(), expected.end(), 1);
    EXPECT_EQ(labels, expected);
    EXPECT_EQ(predictions, 29);
  }
}

TEST(TokenBlocks, OneBlockIsEnough) {
  TokenBlocks blocks(counting(9), {.context = 8, .batch = 1});
  EXPECT_THAT(batches(blocks, 0), ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)));
}

TEST(TokenBlocks, RefusesTooLittleText) {
  const auto message = [](int64_t tokens, TokenBlockOptions o) {
    return error_of([&] { TokenBlocks(counting(tokens), o); });
  };
  EXPECT_THAT(message(8, {.context = 8, .batch = 1}),
              HasSubstr("the text has 8 tokens, but a block of context 8 needs 9"));
  EXPECT_THAT(message(40, {.context = 8, .batch = 3, .world = 2}),
              HasSubstr("the text has 4 blocks of context 8, but a batch of 3 on 2 workers needs 6"));
  EXPECT_THAT(message(9, {.context = 8, .batch = 3}),
              HasSubstr("the text has 1 block of context 8, but a batch of 3 on"));
  EXPECT_THAT(message(40, {.context = 8, .batch = INT64_MAX, .world = 2}),
              HasSubstr("but a batch of 9223372036854775807 on 2 workers needs 9223372036854775806"));
  EXPECT_THAT(message(1, {.train = false}), HasSubstr("the text has 1 token; an evaluation needs 2"));
  EXPECT_THAT(message(100, {.context = 0}), HasSubstr("context: 0 tokens"));
}

TEST(TokenStream, JoinsPartsAndCutsRanges) {
  TokenStream stream(std::vector<int32_t>{1, 2, 3});
  stream.append(TokenStream(std::vector<int32_t>{70000, 5}));
  stream.append(stream);
  const auto ids = [](const TokenStream& from, int64_t begin, int64_t count) {
    std::vector<int32_t> to(static_cast<size_t>(count));
    from.read(begin, to);
    return to;
  };
  EXPECT_EQ(ids(stream, 0, 10), (std::vector<int32_t>{1, 2, 3, 70000, 5, 1, 2, 3, 70000, 5}));
  const TokenStream middle = stream.range(2, 7);
  EXPECT_EQ(ids(middle, 0, 5), (std::vector<int32_t>{3, 70000, 5, 1, 2}));
  EXPECT_EQ(ids(middle, 3, 2), (std::vector<int32_t>{1, 2}));
  EXPECT_NE(middle.hash(), stream.range(0, 5).hash()) << "of equal size";
  EXPECT_EQ(middle.hash(), middle.range(0, 5).hash());
  EXPECT_THAT(error_of([&] { ids(middle, 3, 3); }), HasSubstr("3 tokens at 3 of 5"));
  EXPECT_THAT(error_of([&] { TokenStream(std::vector<int32_t>{-1}); }), HasSubstr("an id is -1"));
}

TEST(TokenStream, IsEmptyAfterItWasMoved) {
  TokenStream stream(std::vector<int32_t>{1, 2, 3});
  const TokenStream other = std::move(stream);
  EXPECT_EQ(other.size(), 3);
  EXPECT_EQ(stream.size(), 0);
  stream.append(other);
  std::vector<int32_t> to(3);
  stream.read(0, to);
  EXPECT_EQ(to, (std::vector<int32_t>{1, 2, 3}));
}

TEST(TokenStream, HashesAllTokensInMemory) {
  std::vector<int32_t> ids(200'000, 3);
  const uint64_t before = TokenStream(ids).hash();
  for (const size_t at : {0, 65'536, 100'000, 199'999}) {
    ids[at] = 4;
    EXPECT_NE(TokenStream(ids).hash(), before) << at;
    ids[at] = 3;
  }
  EXPECT_EQ(TokenStream(ids).hash(), before);
}

TEST(TokenStream, RefusesIdsBeyondTheVocabulary) {
  TokenStream stream(std::vector<int32_t>{1, 2, 3, 9, 4});
  stream.limit(9);
  std::vector<int32_t> to(2);
  stream.read(1, to);
  EXPECT_THAT(error_of([&] { stream.range(1, 5).read(1, to); }), HasSubstr("token 3 is 9, expected ids below 9"));
}

}  // namespace token_blocks_test
}  // namespace godwit::data
