#include "data/text/squad.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/data/files.h"

namespace godwit::data {
namespace squad_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// Reads a file with this content.
Squad parse(const std::string& text) {
  TempFolder folder;
  write(folder / "x.json", bytes_of(text));
  return read_squad(folder / "x.json");
}

std::string error_for(const std::string& text) {
  const std::string error = error_of([&] { parse(text); });
  EXPECT_THAT(error, HasSubstr("x.json: "));
  return error;
}

std::string question(const std::string& id, const std::string& text, const std::string& answers) {
  return R"({"id": ")" + id + R"(", "question": ")" + text + R"(", "answers": [)" + answers + "]}";
}
std::string answer(const std::string& text, const std::string& start) {
  return R"({"text": ")" + text + R"(", "answer_start": )" + start + "}";
}
std::string article(const std::string& context, const std::string& questions) {
  return R"({"title": "t", "paragraphs": [{"context": ")" + context + R"(", "qas": [)" + questions + "]}]}";
}
std::string file(const std::string& articles) { return R"({"version": "1.1", "data": [)" + articles + "]}"; }

TEST(Squad, ReadsPlainAndGzip) {
  const std::string text = file(
      article("It rained in Oslo.", question("a", "Where?", answer("Oslo", "13") + "," + answer("in Oslo", "10"))) +
      "," +
      article("No rain.", question("b", "Why?", answer("rain", "3")) + "," + question("c", "Who?", answer("No", "0"))));
  TempFolder folder;
  for (const Bytes& bytes : {bytes_of(text), gzip(bytes_of(text))}) {
    write(folder / "x", bytes);
    const Squad squad = read_squad(folder / "x");
    EXPECT_THAT(squad.contexts, ElementsAre("It rained in Oslo.", "No rain."));
    ASSERT_EQ(squad.questions.size(), 3u);
    EXPECT_EQ(squad.questions[0].id, "a");
    EXPECT_EQ(squad.questions[0].text, "Where?");
    ASSERT_EQ(squad.questions[0].answers.size(), 2u);
    EXPECT_EQ(squad.questions[0].answers[0].text, "Oslo");
    EXPECT_EQ(squad.questions[0].answers[0].begin, 13);
    EXPECT_EQ(squad.questions[0].answers[1].begin, 10);
    EXPECT_EQ(squad.questions[1].context, 1u);
    EXPECT_EQ(squad.questions[2].context, 1u);
    EXPECT_TRUE(squad.misplaced.empty());
  }
}

// Offsets count code points, for characters of any byte length, escaped or not.
TEST(Squad, OffsetsCountCodePoints) {
  const Squad squad = parse(file(article("é\\u00e9 \\ud83d\\ude00漢 end", question("a", "?", answer("end", "6")))));
  EXPECT_EQ(squad.contexts[0], "éé 😀漢 end");
  EXPECT_EQ(squad.questions[0].answers[0].begin, 13);
  EXPECT_TRUE(squad.questions[0].answers[0].usable());
}

TEST(Squad, CountsAnswersThatDoNotMatchTheirOffset) {
  const Squad squad =
      parse(file(article("abc", question("a", "?",
                                         answer("b", "0") + "," + answer("c", "3") + "," + answer("bcd", "1") + "," +
                                             answer("a", "-1") + "," + answer("a", "9000000000000000000") + "," +
                                             answer("", "1") + "," + answer("bc", "1")))));
  EXPECT_EQ(squad.misplaced.size(), 6u);
  EXPECT_THAT(squad.misplaced[0], AllOf(HasSubstr("data[0].paragraphs[0].qas[0].answers[0]"), HasSubstr("\"b\""),
                                        HasSubstr("character 0")));
  const auto& answers = squad.questions[0].answers;
  ASSERT_EQ(answers.size(), 7u) << "all texts are kept, because predictions are compared with them";
  for (size_t i = 0; i < 6; ++i) EXPECT_FALSE(answers[i].usable());
  EXPECT_EQ(answers[6].begin, 1);
}

TEST(Squad, NamesTheInvalidField) {
  const std::string good = question("a", "?", answer("b", "1"));
  EXPECT_THAT(error_for("{}"), HasSubstr(": data: is missing"));
  EXPECT_THAT(error_for("[1]"), HasSubstr("expected an object, found an array"));
  EXPECT_THAT(error_for(R"({"data": 7})"), HasSubstr("data: expected an array, found 7"));
  EXPECT_THAT(error_for(file("")), HasSubstr("holds no question"));
  EXPECT_THAT(error_for(file("{}")), HasSubstr("data[0].paragraphs: is missing"));
  EXPECT_THAT(error_for(file("null")), HasSubstr("data[0]: expected an object, found null"));
  EXPECT_THAT(error_for(file(article("abc", good) + "," + article("  \\n", good))),
              HasSubstr("data[1].paragraphs[0].context: is blank"));
  EXPECT_THAT(error_for(file(article("abc", good + "," + question("b", "", "")))),
              HasSubstr("data[0].paragraphs[0].qas[1].question: is empty"));
  EXPECT_THAT(error_for(file(article("abc", good + "," + good))),
              AllOf(HasSubstr("qas[1].id: \"a\" is also the id of data[0].paragraphs[0].qas[0]")));
  EXPECT_THAT(error_for(file(article("abc", question("a", "?", answer("b", R"("1")"))))),
              HasSubstr("data[0].paragraphs[0].qas[0].answers[0].answer_start: expected an integer, found \"1\""));
  EXPECT_THAT(error_for(file(article("abc", question("a", "?", answer("b", "1.5"))))), HasSubstr("integer, found 1.5"));
  EXPECT_THAT(error_for(file(article("abc", question("a", "?", answer("b", "18446744073709551615"))))),
              HasSubstr("expected an integer"));
  EXPECT_THAT(error_for(file(article("abc", question("a", "?", R"({"text": ["b"], "answer_start": 1})")))),
              HasSubstr("answers[0].text: expected text, found an array"));
  EXPECT_THAT(error_for(file(article("abc", question("a", "?", R"({"text": "b"})")))),
              HasSubstr("answers[0].answer_start: is missing"));
}

// Such questions occur in SQuAD 2.0. A question with is_impossible has no answer, even if the file lists answers.
TEST(Squad, RefusesQuestionsWithoutAnswers) {
  const std::string good = question("a", "?", answer("b", "1"));
  const auto with = [&](const std::string& id, const std::string& answers, const std::string& impossible) {
    return R"({"id": ")" + id + R"(", "question": "?", "is_impossible": )" + impossible + R"(, "answers": [)" +
           answers + "]}";
  };
  EXPECT_EQ(parse(file(article("abc", good + "," + with("b", answer("b", "1"), "false")))).questions.size(), 2u);
  EXPECT_THAT(error_for(file(article("abc", good + "," + question("b", "?", "") + "," + question("c", "?", "")))),
              AllOf(HasSubstr("2 of 3 questions have no answer"), HasSubstr("data[0].paragraphs[0].qas[1]"),
                    HasSubstr("\"b\""), HasSubstr("SQuAD 2.0"), HasSubstr("SQuAD 1.1")));
  EXPECT_THAT(error_for(file(article("abc", good + "," + with("b", answer("b", "1"), "true")))),
              HasSubstr("1 of 2 questions"));
  EXPECT_THAT(error_for(file(article("abc", with("b", "", "true")))), HasSubstr("1 of 1 question"));
  EXPECT_THAT(error_for(file(article("abc", with("b", answer("b", "1"), "1")))),
              HasSubstr("qas[0].is_impossible: expected true or false"));
}

TEST(Squad, NamesThePositionOfAJsonError) {
  EXPECT_THAT(error_for(""), HasSubstr("is empty, expected a SQuAD file"));
  EXPECT_THAT(error_for("{\"data\":\n [}"), AllOf(HasSubstr("is not valid JSON"), HasSubstr("line 2")));
  EXPECT_THAT(error_for(R"({"data": ")" + std::string("\xff") + "\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(error_for("{\"data\": \"" + std::string(100000, 'x')).size(), testing::Lt(600u)) << "quotes only a part";
  EXPECT_THAT(error_for(std::string(1000000, '[')), HasSubstr("64 levels"));
  EXPECT_THAT(error_of([] { read_squad("/nowhere/x.json"); }), HasSubstr("/nowhere/x.json: no such file"));
}

// For any bytes, the reader returns or throws Error.
TEST(Squad, SurvivesTruncationAnywhere) {
  const std::string text = file(article("é漢 abc", question("a", "w?", answer("abc", "3"))));
  for (size_t cut = 0; cut < text.size(); ++cut) error_for(text.substr(0, cut));
}

TEST(Squad, ReadsTheRealDatasets) {
  const struct {
    const char* name;
    size_t contexts, questions, answers;
  } sets[] = {{"squad/dev-v1.1.json.gz", 2067, 10570, 34726}, {"xquad-en/xquad.en.json", 240, 1190, 1190}};
  for (const auto& set : sets) {
    const std::string path = data_path(set.name);
    if (path.empty()) GTEST_SKIP() << "no " << set.name << "; set GODWIT_DATA to the dataset folder";
    const Squad squad = read_squad(path);
    EXPECT_EQ(squad.contexts.size(), set.contexts);
    EXPECT_EQ(squad.questions.size(), set.questions);
    size_t answers = 0;
    for (const SquadQuestion& q : squad.questions) {
      answers += q.answers.size();
      for (const SquadAnswer& a : q.answers)
        EXPECT_EQ(squad.contexts[q.context].compare(static_cast<size_t>(a.begin), a.text.size(), a.text), 0);
    }
    EXPECT_EQ(answers, set.answers);
    EXPECT_TRUE(squad.misplaced.empty());
  }
}

// Reading time must be linear in the number of questions.
TEST(Squad, ReadsManyQuestionsInLinearTime) {
  std::string questions;
  for (int i = 0; i < 100000; ++i)
    questions += (i ? "," : "") + question(std::to_string(i), "Why?", answer("rained", "3"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(parse(file(article("It rained.", questions))).questions.size(), 100000u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << "expected 0.3 s";
}

TEST(Squad, MessagesTruncateAndEscapeTextFromTheFile) {
  const std::string name = "\\u001b[2Jx\\n" + std::string(500000, 'y');
  for (const std::string& text : {file(article("It rained.", question(name, "a", "") + "," + question(name, "b", ""))),
                                  R"({"version": "1.1", "data": ")" + name + "\"}", "{" + std::string(500000, 'z'),
                                  std::string("{\"\x1b[2J\n")}) {
    const std::string error = error_for(text);
    EXPECT_LT(error.size(), 500u);
    for (const char c : error) EXPECT_GE(static_cast<unsigned char>(c), 32) << error;
  }
}

}  // namespace squad_test
}  // namespace godwit::data
