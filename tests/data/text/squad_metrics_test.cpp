#include "data/text/squad_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/philox.h"
#include "engine/utf8.h"
#include "tests/data/golden.h"

namespace godwit::data {
namespace squad_metrics_test {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const json& expected() {
  static const json values = json::parse(std::ifstream(golden_path("squad_metrics.json")));
  return values;
}

std::set<char32_t> code_points(const char* name) {
  std::set<char32_t> all;
  for (const json& range : expected()[name])
    for (char32_t c = range[0]; c <= range[1]; ++c) all.insert(c);
  return all;
}

std::string text_of(char32_t c) {
  std::string text;
  append_utf8(text, c);
  return text;
}

// One context, with one question per entry.
Squad squad_of(const std::vector<std::vector<std::string>>& answers) {
  Squad squad{.contexts = {"c"}, .questions = {}, .misplaced = {}};
  for (const auto& texts : answers) {
    squad.questions.push_back(
        {.id = "q" + std::to_string(squad.questions.size()), .text = "?", .context = 0, .answers = {}});
    for (const std::string& text : texts) squad.questions.back().answers.push_back({text, 0});
  }
  return squad;
}

TEST(SquadMetrics, NormalizesLikePython) {
  for (const json& pair : expected()["normalised"])
    EXPECT_EQ(normalize_answer(pair[0].get<std::string>()), pair[1].get<std::string>()) << pair.dump();
}

// Tests every code point known to Python's Unicode version: whether it is a space, whether it separates a preceding
// article, and its lower case.
TEST(SquadMetrics, ClassifiesEveryCodePointLikePython) {
  const std::set<char32_t> spaces = code_points("spaces"), words = code_points("words");
  std::unordered_map<char32_t, std::string> lower;
  for (const json& pair : expected()["lower"]) lower[pair[0].get<char32_t>()] = pair[1].get<std::string>();
  const std::string punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
  int wrong = 0;
  for (const char32_t c : code_points("known")) {
    const std::string text = text_of(c), small = lower.contains(c) ? lower[c] : text;
    const bool gone = punctuation.find(text) != std::string::npos && c != 0;
    const std::string between = gone ? "xx" : spaces.contains(c) ? "x x" : "x" + small + "x";
    const std::string behind = gone ? "ax" : spaces.contains(c) ? "x" : (words.contains(c) ? "a" : "") + small + "x";
    const std::string found = normalize_answer("x" + text + "x"), article = normalize_answer("a" + text + "x");
    if (found != between || article != behind) {
      if (++wrong < 10) ADD_FAILURE() << std::hex << static_cast<uint32_t>(c) << ": " << found << " and " << article;
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST(SquadMetrics, ScoresLikeTheReference) {
  std::vector<std::vector<std::string>> answers;
  for (const json& score : expected()["scores"]) {
    answers.push_back(score[1].get<std::vector<std::string>>());
    const SquadScore found = squad_score(squad_of({answers.back()}), {{"q0", score[0].get<std::string>()}});
    EXPECT_EQ(found.exact_match, score[2].get<double>()) << score.dump();
    EXPECT_EQ(found.f1, score[3].get<double>()) << score.dump();
  }
}

TEST(SquadMetrics, CountsUnansweredQuestions) {
  const Squad squad = squad_of({{"cat"}, {"dog", "the dog"}, {"x y"}, {}});
  const SquadScore score = squad_score(squad, {{"q0", "A cat."}, {"q2", "y z"}, {"unknown", "cat"}});
  EXPECT_EQ(score.questions, 4);
  EXPECT_EQ(score.unanswered, 2);
  EXPECT_EQ(score.exact_match, 25);
  EXPECT_EQ(score.f1, 37.5);
  EXPECT_THAT(error_of([&] { squad_score(squad, {{"q3", "x"}}); }), HasSubstr("question \"q3\" has no answers"));
  EXPECT_THAT(error_of([] { squad_score({}, {}); }), HasSubstr("no question"));
}

TEST(SquadMetrics, ReadsAnswers) {
  TempFolder folder;
  const auto put = [&](const std::string& text) { write(folder / "p.json", Bytes(text.begin(), text.end())); };
  put(R"({"a": "x\u00e9", "b": "", "a": "y"})");
  const Answers answers = read_answers(folder / "p.json");
  EXPECT_EQ(answers, (Answers{{"a", "y"}, {"b", ""}})) << "the last of two equal keys counts, as in Python";
  put(R"({"a": "x", "b": null})");
  EXPECT_THAT(error_of([&] { read_answers(folder / "p.json"); }), AllOf(HasSubstr("p.json: b: "), HasSubstr("null")));
  put("[]");
  EXPECT_THAT(error_of([&] { read_answers(folder / "p.json"); }), HasSubstr("expected an object"));
}

// Changes an answer randomly in up to three ways.
std::string changed(const std::string& answer, RandomStream& random) {
  static const std::vector<std::string> additions = {" the ", "The", ".",    "\"",     " a", "\xc2\xa0", " İ", "Σ",
                                                     "ΟΔΟΣ",  "-",   " an ", "\u0301", "漢", "\t\n",     "½"};
  std::string text = answer;
  for (uint32_t n = random.below(4); n > 0; --n) {
    const std::string& addition = additions[random.below(static_cast<uint32_t>(additions.size()))];
    size_t at = random.below(static_cast<uint32_t>(text.size() + 1));
    while (at > 0 && at < text.size() && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) --at;
    switch (random.below(5)) {
      case 0:
        text.insert(at, addition);
        break;
      case 1:
        text += addition;
        break;
      case 2:
        text = text.substr(0, at);
        break;
      case 3:
        text = text.substr(at);
        break;
      default:
        for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    }
  }
  return text;
}

// Adversarial predictions for the whole development set. The scores must equal those of a Python script bit for bit.
TEST(SquadMetrics, ScoresTheDevelopmentSetLikeTheReference) {
  const std::string path = data_path("squad/dev-v1.1.json.gz");
  if (path.empty()) GTEST_SKIP() << "no squad/dev-v1.1.json.gz; set GODWIT_DATA to the dataset folder";
  if (std::system("python3 -c 'import json' 2>/dev/null") != 0) GTEST_SKIP() << "no python3";
  const Squad squad = read_squad(path);
  RandomStream random(7, Purpose::test);
  json predictions;
  for (const SquadQuestion& question : squad.questions) {
    const auto answers = static_cast<uint32_t>(question.answers.size());
    if (random.below(20) > 0) predictions[question.id] = changed(question.answers[random.below(answers)].text, random);
  }
  TempFolder folder;
  std::ofstream(folder / "p.json") << predictions.dump();
  const std::string command = "python3 '" GODWIT_SHELL_SOURCE_DIR "/tests/data/text/squad_evaluate.py' \"" + path +
                              "\" '" + (folder / "p.json") + "' >'" + (folder / "out") + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const json reference = json::parse(std::ifstream(folder / "out"));
  const SquadScore score = squad_score(squad, read_answers(folder / "p.json"));
  EXPECT_EQ(score.exact_match, reference["exact_match"].get<double>());
  EXPECT_EQ(score.f1, reference["f1"].get<double>());
  EXPECT_GT(score.f1, 50);
  EXPECT_LT(score.f1, 90);
  EXPECT_GT(score.unanswered, 300);
}

}  // namespace squad_metrics_test
}  // namespace godwit::data
