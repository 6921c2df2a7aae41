#include "data/text/squad_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/philox.h"
#include "tests/data/text/words.h"

namespace godwit::data {
namespace squad_answers_test {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// A context of ten words and questions of one token: windows of six words with stride three.
struct Fixture {
  Squad squad{.contexts = {"w0 w1 w2 w3 w4 w5 w6 w7 w1 w2"}, .questions = {}, .misplaced = {}};
  std::unique_ptr<SquadFeatures> features;

  explicit Fixture(int questions = 1) {
    for (int i = 0; i < questions; ++i)
      squad.questions.push_back({.id = "q" + std::to_string(i), .text = "w9", .context = 0, .answers = {}});
    features = std::make_unique<SquadFeatures>(squad, word_tokenizer(),
                                               SquadOptions{.length = 10, .stride = 3, .max_question = 1});
  }
};

std::vector<float> noise(size_t n, uint32_t name, bool ties) {
  RandomStream random(11, Purpose::test, name);
  std::vector<float> values(n);
  for (float& v : values) v = ties ? static_cast<float>(random.below(4)) : static_cast<float>(random.normal());
  return values;
}

// The original write_predictions(), step by step.
std::vector<std::pair<std::string, double>> original(const SquadFeatures& features,
                                                     const std::vector<std::vector<float>>& starts,
                                                     const std::vector<std::vector<float>>& ends, int64_t question,
                                                     int64_t best, int64_t longest) {
  const auto best_indexes = [&](const std::vector<float>& logits) {
    std::vector<size_t> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    order.resize(std::min(order.size(), static_cast<size_t>(best)));
    return order;
  };
  struct Prelim {
    int64_t window;
    size_t start, end;
    double sum;
  };
  std::vector<Prelim> prelim;
  for (int64_t w = features.first_window(question); w < features.first_window(question + 1); ++w) {
    const auto at = static_cast<size_t>(w);
    const size_t first = 3, last = first + static_cast<size_t>(features.window(w).count);  // after [CLS] w9 [SEP]
    for (const size_t s : best_indexes(starts[at]))
      for (const size_t e : best_indexes(ends[at])) {
        if (s < first || s >= last || e < first || e >= last || e < s || e - s + 1 > static_cast<size_t>(longest))
          continue;
        if (!features.has_most_context(w, features.window(w).first + static_cast<int64_t>(s - first))) continue;
        prelim.push_back({w, s, e, double{starts[at][s]} + double{ends[at][e]}});
      }
  }
  std::stable_sort(prelim.begin(), prelim.end(), [](const Prelim& a, const Prelim& b) { return a.sum > b.sum; });
  std::vector<std::pair<std::string, double>> entries;
  std::set<std::string> seen;
  for (const Prelim& p : prelim) {
    if (std::ssize(entries) >= best) break;
    const std::string text(features.text(p.window, static_cast<int64_t>(p.start), static_cast<int64_t>(p.end)));
    if (seen.insert(text).second) entries.emplace_back(text, p.sum);
  }
  if (entries.empty()) entries.emplace_back("empty", 0.0);
  return entries;
}

TEST(SquadAnswers, MatchTheOriginal) {
  const Fixture f(3);
  const SquadFeatures& features = *f.features;
  ASSERT_EQ(features.size(), 9);
  for (uint32_t trial = 0; trial < 200; ++trial) {
    const AnswerOptions options{.best = 1 + trial % 9, .longest = 1 + trial % 5};
    std::vector<std::vector<float>> starts, ends;
    std::vector<Candidate> candidates;
    for (int64_t w = 0; w < features.size(); ++w) {
      const auto tokens = static_cast<size_t>(features.measure(w, 0).tokens);
      starts.push_back(noise(tokens, 100 * trial + static_cast<uint32_t>(w), trial % 2));
      ends.push_back(noise(tokens, 100 * trial + 50 + static_cast<uint32_t>(w), trial % 2));
    }
    for (int64_t w = features.size() - 1; w >= 0; --w) {  // windows may come in any order
      auto padded_starts = starts[static_cast<size_t>(w)], padded_ends = ends[static_cast<size_t>(w)];
      padded_starts.insert(padded_starts.end(), 5, 1000.0f);
      padded_ends.insert(padded_ends.end(), 5, NAN);
      for (const Candidate& c : answer_candidates(features, w, padded_starts, padded_ends, options))
        candidates.push_back(c);
    }
    const auto all = best_answers(features, candidates, options);
    ASSERT_EQ(all.size(), 3u);
    for (int64_t q = 0; q < 3; ++q) {
      const auto expected = original(features, starts, ends, q, options.best, options.longest);
      const QuestionAnswers& found = all[static_cast<size_t>(q)];
      EXPECT_EQ(found.id, "q" + std::to_string(q));
      ASSERT_EQ(found.best.size(), expected.size());
      double total = 0, sum = 0;
      for (const auto& entry : expected) total += std::exp(entry.second - expected[0].second);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(found.best[i].text, expected[i].first);
        EXPECT_EQ(found.best[i].start_logit + found.best[i].end_logit, expected[i].second);
        EXPECT_NEAR(found.best[i].probability, std::exp(expected[i].second - expected[0].second) / total, 1e-12);
        sum += found.best[i].probability;
      }
      EXPECT_NEAR(sum, 1, 1e-12);
    }
  }
}

TEST(SquadAnswers, AQuestionWithoutAllowedSpansGetsTheAnswerEmpty) {
  const Fixture f;
  const auto all = best_answers(*f.features, {});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].best.size(), 1u);
  EXPECT_EQ(all[0].best[0].text, "empty");
  EXPECT_EQ(all[0].best[0].probability, 1);
  EXPECT_EQ(first_answers(all), (Answers{{"q0", "empty"}}));
}

TEST(SquadAnswers, RefusesInvalidLogits) {
  const Fixture f;
  std::vector<float> good(10, 0.0f), bad = good;
  bad[9] = INFINITY;
  EXPECT_THAT(error_of([&] { answer_candidates(*f.features, 1, good, bad); }), HasSubstr("logit 9 of window 1 is inf"));
  EXPECT_THAT(error_of([&] { answer_candidates(*f.features, 1, good, std::span(good).first(9)); }),
              AllOf(HasSubstr("10 and 9 logits"), HasSubstr("10 tokens of window 1")));
  EXPECT_THAT(error_of([&] { best_answers(*f.features, {{7, 0, 0, 0, 0}}); }), HasSubstr("window 7 of 3"));
  EXPECT_THAT(error_of([&] { f.features->text(0, 2, 3); }), HasSubstr("not in its context"));
}

TEST(SquadAnswers, WritesTheTwoFiles) {
  TempFolder folder;
  const std::vector<QuestionAnswers> all{{"b", {{"é \"x\"", 0.75, 1.5, -0.25}, {"y", 0.25, 1, 0}}},
                                         {"a", {{"z", 1, 0, 0}}}};
  write_predictions(folder / "predictions.json", all);
  write_nbest(folder / "nbest.json", all);
  const Bytes bytes = read(folder / "predictions.json");
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "{\n    \"b\": \"\\u00e9 \\\"x\\\"\",\n    \"a\": \"z\"\n}\n");
  EXPECT_EQ(read_answers(folder / "predictions.json"), first_answers(all));
  const Bytes nbest = read(folder / "nbest.json");
  const json content = json::parse(nbest.begin(), nbest.end());
  EXPECT_EQ(content["b"][0],
            json({{"text", "é \"x\""}, {"probability", 0.75}, {"start_logit", 1.5}, {"end_logit", -0.25}}));
  EXPECT_EQ(content["b"].size(), 2u);
  EXPECT_EQ(content["a"].size(), 1u);
  EXPECT_THAT(error_of([&] { write_predictions(folder / "none/x.json", all); }),
              AllOf(HasSubstr("none/x.json"), HasSubstr("cannot be written")));
}

}  // namespace squad_answers_test
}  // namespace godwit::data
