#include "data/text/squad_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/text/text_loader.h"
#include "engine/context.h"
#include "tests/data/text/words.h"

namespace godwit::data {
namespace squad_features_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Ids from 5 on are the words w0 … w9; some letters follow.
constexpr int32_t kCls = 2, kSep = 3, kWord = 5;

struct Asked {
  std::string text;
  std::vector<SquadAnswer> answers;
};

Squad squad_of(const std::string& context, const std::vector<Asked>& questions) {
  Squad squad{.contexts = {context}, .questions = {}, .misplaced = {}};
  for (const Asked& asked : questions)
    squad.questions.push_back({.id = "q" + std::to_string(squad.questions.size()),
                               .text = asked.text,
                               .context = 0,
                               .answers = asked.answers});
  return squad;
}

TEST(SquadFeatures, OneWindowHoldsAShortContext) {
  const Squad squad = squad_of("w0 w1, w2 w3", {{"w8 w9", {{"w2", 7}}}, {"w7", {{"w1, w2 w3", 3}}}});
  const SquadFeatures features(squad, word_tokenizer(), {.length = 16, .max_question = 4});
  ASSERT_EQ(features.size(), 2);
  const TextSample sample = features.read(0, 0);
  EXPECT_THAT(sample.ids,
              ElementsAre(kCls, kWord + 8, kWord + 9, kSep, kWord, kWord + 1, kComma, kWord + 2, kWord + 3, kSep));
  EXPECT_EQ(sample.first, 4);
  EXPECT_EQ(sample.start, 7);
  EXPECT_EQ(sample.end, 7);
  EXPECT_EQ(features.measure(0, 0).tokens, 10);
  EXPECT_EQ(features.read(1, 0).start, 4);
  EXPECT_EQ(features.read(1, 0).end, 7);
  EXPECT_EQ(features.text(1, 4, 7), "w1, w2 w3");
}

// As in the original preparation: windows begin `stride` tokens apart, until one reaches the end.
TEST(SquadFeatures, WindowsOverlapByTheStride) {
  const Squad squad = squad_of("w0 w1 w2 w3 w4 w5 w6 w7 w8 w9", {{"w1", {{"w4 w5", 12}}}});
  const auto windows = [&](int64_t length, int64_t stride) {
    const SquadFeatures features(squad, word_tokenizer(), {.length = length, .stride = stride, .max_question = 1});
    std::vector<std::vector<int32_t>> all;
    for (int64_t i = 0; i < features.size(); ++i) {
      const auto& w = features.window(i);
      all.push_back({w.first, w.count, w.start, w.end});
      EXPECT_LE(features.measure(i, 0).tokens, length);
    }
    return all;
  };
  using Windows = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(windows(8, 2), (Windows{{0, 4, 0, 0}, {2, 4, 5, 6}, {4, 4, 3, 4}, {6, 4, 0, 0}}));
  EXPECT_EQ(windows(8, 4), (Windows{{0, 4, 0, 0}, {4, 4, 3, 4}, {8, 2, 0, 0}}));
  EXPECT_EQ(windows(8, 100), (Windows{{0, 4, 0, 0}, {4, 4, 3, 4}, {8, 2, 0, 0}})) << "no token may be left out";
  EXPECT_EQ(windows(14, 3), (Windows{{0, 10, 7, 8}}));
  EXPECT_EQ(windows(13, 3), (Windows{{0, 9, 7, 8}, {3, 7, 4, 5}}));
}

// An answer that begins or ends within a token gets the whole token. Surrounding spaces add no token.
TEST(SquadFeatures, SpansCoverTheBytesOfTheAnswer) {
  const std::string context = "éw0 w1w2 ÉÉ";  // é w0 are two tokens of one word
  const auto span = [&](int64_t begin, size_t count) {
    const Squad squad = squad_of(context, {{"w1", {{context.substr(static_cast<size_t>(begin), count), begin}}}});
    const SquadFeatures features(squad, word_tokenizer(), {.length = 64, .max_question = 8, .train = false});
    const auto& w = features.window(0);
    return w.start == 0 ? std::string("nowhere") : std::string(features.text(0, w.start, w.end));
  };
  EXPECT_EQ(span(0, context.size()), context);
  EXPECT_EQ(span(0, 2), "é");
  EXPECT_EQ(span(3, 1), "w0") << "the last byte of w0";
  EXPECT_EQ(span(4, 4), "w1w2") << "with the preceding space";
  EXPECT_EQ(span(4, 1), "nowhere") << "only a space";
}

TEST(SquadFeatures, SkipsTrainingQuestionsWithoutAUsableAnswer) {
  const Squad squad = squad_of("w0 w1", {{"w2", {{"w9", -1}}}, {"w3", {}}, {"w4", {{"w9", -1}, {"w1", 3}}}});
  const SquadFeatures train(squad, word_tokenizer(), {.length = 70});
  EXPECT_EQ(train.left_out(), 1);
  ASSERT_EQ(train.size(), 2);
  EXPECT_EQ(train.window(0).question, 1);
  EXPECT_EQ(train.window(0).start, 0) << "without an answer in the file, the span is [CLS]";
  EXPECT_EQ(train.window(1).start, 4) << "the first usable answer";
  EXPECT_EQ(train.first_window(1), 0);
  EXPECT_EQ(train.first_window(3), 2);
  const SquadFeatures test(squad, word_tokenizer(), {.length = 70, .train = false});
  EXPECT_EQ(test.size(), 3);
  const Squad none = squad_of("w0 w1", {{"w2", {{"w9", -1}}}});
  EXPECT_THAT(error_of([&] { SquadFeatures(none, word_tokenizer(), {.length = 70}); }),
              HasSubstr("none of 1 questions"));
}

TEST(SquadFeatures, TruncatesLongQuestions) {
  const Squad squad = squad_of("w0", {{"w1 w2 w3 w4", {{"w0", 0}}}});
  const SquadFeatures features(squad, word_tokenizer(), {.length = 8, .max_question = 2});
  EXPECT_THAT(features.read(0, 0).ids, ElementsAre(kCls, kWord + 1, kWord + 2, kSep, kWord, kSep));
}

TEST(SquadFeatures, RefusesOptionsWithoutRoomForContext) {
  const Squad squad = squad_of("w0", {{"w1", {{"w0", 0}}}});
  const auto error = [&](SquadOptions options) {
    return error_of([&] { SquadFeatures(squad, word_tokenizer(), options); });
  };
  EXPECT_THAT(error({.length = 67}), AllOf(HasSubstr("length of 67"), HasSubstr("question of 64")));
  EXPECT_THAT(error({.stride = 0}), HasSubstr("doc_stride 0"));
  EXPECT_THAT(error({.max_question = 0}), HasSubstr("max_question 0"));
}

// Must equal token_is_max_context of the original preparation.
TEST(SquadFeatures, EachTokenHasItsMaximumContextInOneWindow) {
  std::string context;
  for (int i = 0; i < 47; ++i) context += "w" + std::to_string(i % 10) + " ";
  const Squad squad = squad_of(context, {{"w0", {}}});
  for (const int64_t stride : {1, 3, 7, 12}) {
    const SquadFeatures features(squad, word_tokenizer(), {.length = 20, .stride = stride, .max_question = 1});
    for (int64_t token = 0; token < 47; ++token) {
      double best = -1;
      int64_t expected = -1;
      for (int64_t i = 0; i < features.size(); ++i) {
        const auto& w = features.window(i);
        if (token < w.first || token >= w.first + w.count) continue;
        const int64_t left = token - w.first, right = w.first + w.count - 1 - token;
        const double score = static_cast<double>(std::min(left, right)) + 0.01 * w.count;
        if (score > best) best = score, expected = i;
      }
      for (int64_t i = 0; i < features.size(); ++i) {
        const auto& w = features.window(i);
        if (token >= w.first && token < w.first + w.count) {
          EXPECT_EQ(features.has_most_context(i, token), i == expected);
        }
      }
    }
  }
}

// In the real dataset, the text of every target span must contain the answer and may exceed it only up to token
// boundaries. The result must not depend on the thread count.
TEST(SquadFeatures, FindsTheAnswersOfXquad) {
  const std::string path = data_path("xquad-en/xquad.en.json"), vocabulary = data_path("bert-vocab/vocab.txt");
  if (path.empty() || vocabulary.empty())
    GTEST_SKIP() << "no xquad-en or bert-vocab; set GODWIT_DATA to the dataset folder";
  const Squad squad = read_squad(path);
  const WordPiece tokenizer(read_vocabulary(vocabulary));
  const SquadFeatures features(squad, tokenizer, {.length = 128, .stride = 64});
  EXPECT_EQ(features.left_out(), 0);
  int64_t spans = 0, equal = 0;
  for (int64_t i = 0; i < features.size(); ++i) {
    const auto& w = features.window(i);
    const SquadAnswer& answer = squad.questions[static_cast<size_t>(w.question)].answers[0];
    if (w.start == 0) continue;
    const std::string_view text = features.text(i, w.start, w.end);
    EXPECT_NE(text.find(answer.text), std::string_view::npos) << text << " / " << answer.text;
    ++spans;
    equal += text == answer.text;
  }
  EXPECT_GT(spans, 1190);
  EXPECT_GE(static_cast<double>(equal), 0.995 * static_cast<double>(spans));
  for (const int threads : {2, 5})
    EXPECT_EQ(SquadFeatures(squad, tokenizer, {.length = 128, .stride = 64, .threads = threads}).hash(),
              features.hash());
  EXPECT_NE(SquadFeatures(squad, tokenizer, {.length = 128, .stride = 63}).hash(), features.hash());
}

}  // namespace squad_features_test
}  // namespace godwit::data
