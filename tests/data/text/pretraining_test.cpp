#include "data/text/pretraining.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/data/text/words.h"

namespace godwit::data {
namespace pretraining_test {

using testing::HasSubstr;

constexpr int32_t kCls = 2, kSep = 3, kMask = 4;

// Four words that encode the number.
std::string sentence(int number) {
  std::string text;
  for (int i = 0; i < 4; ++i, number /= 5) text += " w" + std::to_string(number % 5 + 5 * (i % 2));
  return text;
}

Corpus corpus(int documents, int sentences) {
  std::string text;
  for (int d = 0; d < documents; ++d, text += '\n')
    for (int s = 0; s < sentences; ++s) text += sentence(d * sentences + s) + "\n";
  return {text, Sentences::lines};
}

// The sample's ids with the masked tokens restored.
std::vector<int32_t> restored(const TextSample& sample) {
  std::vector<int32_t> ids = sample.ids;
  for (size_t i = 0; i < sample.masked_positions.size(); ++i)
    ids[static_cast<size_t>(sample.masked_positions[i])] = sample.masked_labels[i];
  return ids;
}

std::vector<int32_t> ids_of(const Corpus& text) {
  std::vector<int32_t> ids;
  for (int64_t s = 0; s < text.sentences(); ++s)
    for (const Token& token : word_tokenizer().encode(text.sentence(s))) ids.push_back(token.id);
  return ids;
}

bool same(const TextSample& a, const TextSample& b) {
  return a.ids == b.ids && a.first == b.first && a.label == b.label && a.masked_positions == b.masked_positions &&
         a.masked_labels == b.masked_labels;
}

TEST(Pretraining, SamplesAreTwoSegmentsOfTheCorpus) {
  const Corpus text = corpus(20, 30);
  const std::vector<int32_t> all = ids_of(text);
  const PretrainingDataset source(text, word_tokenizer(), {.length = 40, .seed = 3});
  EXPECT_EQ(source.tokens(), std::ssize(all));
  const auto found = [&](auto begin, auto end) { return std::search(all.begin(), all.end(), begin, end); };
  int64_t followed = 0, random = 0;
  for (int64_t epoch = 0; epoch < 3; ++epoch)
    for (int64_t i = 0; i < source.size(); ++i) {
      const TextSample sample = source.read(i, epoch);
      const std::vector<int32_t> ids = restored(sample);
      ASSERT_LE(std::ssize(ids), 40);
      ASSERT_EQ(ids.front(), kCls);
      ASSERT_EQ(ids.back(), kSep);
      ASSERT_EQ(ids[static_cast<size_t>(sample.first) - 1], kSep);
      ASSERT_EQ(std::ranges::count(ids, kSep), 2);
      const auto a = ids.begin() + 1, a_end = ids.begin() + sample.first - 1, b = a_end + 1, b_end = ids.end() - 1;
      ASSERT_GT(a_end - a, 0);
      ASSERT_GT(b_end - b, 0);
      EXPECT_NE(found(a, a_end), all.end());
      EXPECT_NE(found(b, b_end), all.end());
      const auto extent = source.measure(i, epoch);
      EXPECT_EQ(extent.tokens, std::ssize(ids));
      EXPECT_EQ(extent.masked, std::ssize(sample.masked_positions));
      if (sample.label == 1) ++random;
      else ++followed;
      // Untruncated consecutive segments must be one range of the corpus.
      if (sample.label == 0 && std::ssize(ids) < 40) {
        std::vector<int32_t> both(a, a_end);
        both.insert(both.end(), b, b_end);
        EXPECT_NE(found(both.begin(), both.end()), all.end());
      }
    }
  // A run of one sentence at the end of a document has no next segment, so slightly more than half are random.
  const double n = static_cast<double>(random + followed);
  EXPECT_NEAR(static_cast<double>(random) / n, 0.5, 5 * 0.5 / std::sqrt(n) + 0.03);
}

// Every sentence of every document must be in some run, and a random segment B must be from another document.
TEST(Pretraining, UsesAllSentencesAndOtherDocuments) {
  // Document d repeats word d.
  std::string text;
  for (int d = 0; d < 10; ++d) {
    for (int s = 0; s < 7; ++s) text += " w" + std::to_string(d) + " w" + std::to_string(d) + "\n";
    text += "\n";
  }
  const PretrainingDataset source(Corpus(text, Sentences::lines), word_tokenizer(), {.length = 19, .short_samples = 0});
  EXPECT_EQ(source.size(), 10) << "14 tokens per document, room for 16";
  std::set<int32_t> others;
  for (int64_t epoch = 0; epoch < 200; ++epoch)
    for (int64_t i = 0; i < source.size(); ++i) {
      const TextSample sample = source.read(i, epoch);
      const std::vector<int32_t> ids = restored(sample);
      const int32_t a = ids[1], b = ids[static_cast<size_t>(sample.first)];
      EXPECT_EQ(a, 5 + i);
      EXPECT_EQ(sample.label, a == b ? 0 : 1);
      if (i == 3 && a != b) others.insert(b);
      if (sample.label == 0) {
        EXPECT_EQ(std::ssize(ids), 17) << "must be the whole document";
      }
    }
  EXPECT_EQ(others.size(), 9u);
}

TEST(Pretraining, SplitsLongSentencesIntoHalves) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "w" + std::to_string(i % 10) + " ";
  const PretrainingDataset source(Corpus(text, Sentences::lines), word_tokenizer(), {.length = 43});
  EXPECT_EQ(source.size(), 25) << "1000 tokens, 40 per run";
  bool follows = false;
  for (int64_t i = 0; i < source.size(); ++i) follows = follows || source.read(i, 0).label == 0;
  EXPECT_TRUE(follows);
}

TEST(Pretraining, OneDocumentOfOneSentenceIsEnough) {
  const PretrainingDataset source(Corpus("w1 w2", Sentences::lines), word_tokenizer(), {.length = 16});
  ASSERT_EQ(source.size(), 1);
  const TextSample sample = source.read(0, 0);
  EXPECT_EQ(restored(sample), (std::vector<int32_t>{kCls, 6, 7, kSep, 6, 7, kSep}));
  EXPECT_EQ(sample.label, 1);
}

// 15 % of the tokens are masked: 80 % become [MASK], 10 % random, 10 % stay. Special tokens are never masked, and all
// positions are equally likely.
TEST(Pretraining, MasksLikeTheOriginal) {
  const Corpus text = corpus(10, 100);
  const PretrainingDataset source(text, word_tokenizer(), {.length = 64, .seed = 9});
  double masked = 0, tokens = 0, hidden = 0, same_token = 0;
  std::vector<int> at(64);
  for (int64_t epoch = 0; epoch < 20; ++epoch)
    for (int64_t i = 0; i < source.size(); ++i) {
      const TextSample sample = source.read(i, epoch);
      ASSERT_TRUE(std::ranges::is_sorted(sample.masked_positions));
      ASSERT_EQ(std::ranges::adjacent_find(sample.masked_positions), sample.masked_positions.end());
      tokens += static_cast<double>(sample.ids.size());
      for (size_t k = 0; k < sample.masked_positions.size(); ++k) {
        const int32_t place = sample.masked_positions[k], now = sample.ids[static_cast<size_t>(place)];
        EXPECT_GE(sample.masked_labels[k], 5) << "special tokens must not be masked";
        EXPECT_TRUE(place != 0 && place != sample.first - 1 && place + 1 != std::ssize(sample.ids));
        ++masked;
        hidden += now == kMask;
        same_token += now == sample.masked_labels[k];
        if (sample.ids.size() == 64) ++at[static_cast<size_t>(place)];
      }
    }
  EXPECT_NEAR(masked / tokens, 0.15, 0.01) << "rounded to 10 of 64";
  const double sigma = 1 / std::sqrt(masked);
  EXPECT_NEAR(hidden / masked, 0.8 + 0.1 / 22, 5 * 0.4 * sigma) << "a random token is [MASK] with probability 1/22";
  EXPECT_NEAR(same_token / masked, 0.1 + 0.1 / 22, 5 * 0.3 * sigma);
  // Positions 1 and 62 are never [SEP], so both are masked about equally often.
  EXPECT_NEAR(at[1], at[62], 6 * std::sqrt(at[1] + at[62]));
  EXPECT_GT(at[1], 100);
}

TEST(Pretraining, LimitsTheNumberOfPredictions) {
  const Corpus text = corpus(4, 50);
  const PretrainingDataset few(text, word_tokenizer(), {.length = 64, .max_predictions = 3, .short_samples = 0});
  const PretrainingDataset many(text, word_tokenizer(), {.length = 64, .masked = 0.9, .short_samples = 0});
  for (int64_t i = 0; i < few.size(); ++i) EXPECT_LE(few.read(i, 0).masked_labels.size(), 3u);
  EXPECT_EQ(few.read(0, 0).masked_labels.size(), 3u);
  for (int64_t i = 0; i < many.size(); ++i)
    EXPECT_LE(std::ssize(many.read(i, 0).masked_labels), std::ssize(many.read(i, 0).ids) - 3);
}

TEST(Pretraining, SomeSamplesAreShort) {
  const Corpus text = corpus(4, 500);
  const auto mean = [&](double fraction) {
    const PretrainingDataset source(text, word_tokenizer(), {.length = 64, .short_samples = fraction});
    double tokens = 0;
    for (int64_t i = 0; i < source.size(); ++i) tokens += static_cast<double>(source.measure(i, 0).tokens);
    return tokens / static_cast<double>(source.size());
  };
  EXPECT_GT(mean(0), 60);
  EXPECT_LT(mean(1), 45);
}

TEST(Pretraining, DependsOnlyOnSeedEpochAndSample) {
  const Corpus text = corpus(6, 40);
  const PretrainingDataset a(text, word_tokenizer(), {.length = 32, .seed = 1}),
      b(text, word_tokenizer(), {.length = 32, .seed = 1, .threads = 3}),
      other(text, word_tokenizer(), {.length = 32, .seed = 2});
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_NE(a.hash(), other.hash());
  int64_t equal_epochs = 0, equal_seeds = 0;
  for (int64_t i = a.size() - 1; i >= 0; --i) {
    EXPECT_TRUE(same(a.read(i, 4), b.read(i, 4)));
    equal_epochs += same(a.read(i, 4), a.read(i, 5));
    equal_seeds += same(a.read(i, 4), other.read(i, 4));
  }
  EXPECT_LT(equal_epochs, a.size() / 20 + 1);
  EXPECT_LT(equal_seeds, a.size() / 20 + 1);
}

TEST(Pretraining, RefusesInvalidArguments) {
  const Corpus text = corpus(2, 3);
  const auto error = [&](PretrainingOptions options) {
    return error_of([&] { PretrainingDataset(text, word_tokenizer(), options); });
  };
  EXPECT_THAT(error({.length = 4}), HasSubstr("length of 4"));
  EXPECT_THAT(error({.masked = 0}), HasSubstr("masks 0"));
  EXPECT_THAT(error({.masked = 1}), HasSubstr("masks 1"));
  EXPECT_THAT(error({.max_predictions = -1}), HasSubstr("max_predictions -1"));
  EXPECT_THAT(error({.short_samples = 1.5}), HasSubstr("short_samples 1.5"));
  EXPECT_THAT(error_of([] { PretrainingDataset(Corpus("\x01", Sentences::lines), word_tokenizer(), {}); }),
              HasSubstr("no tokens"));
}

}  // namespace pretraining_test
}  // namespace godwit::data
