#include "data/text/wordpiece.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "data/text/squad.h"
#include "engine/hash.h"
#include "engine/utf8.h"
#include "tests/data/golden.h"

namespace godwit::data {

inline std::ostream& operator<<(std::ostream& out, const Token& token) {
  return out << token.id << " [" << token.begin << ", " << token.end << ")";
}

namespace wordpiece_test {

using nlohmann::json;
using testing::ElementsAre;

// The results of HuggingFace tokenizers for the same input (see make_tokenizer_golden.py).
const json& expected() {
  static const json values = json::parse(std::ifstream(golden_path("tokenizer.json")));
  return values;
}

Vocabulary golden_vocabulary() { return Vocabulary(expected()["vocabulary"].get<std::vector<std::string>>()); }

template <class Options>
Options options_in(const json& values) {
  Options options;
  options.lower_case = values.value("lower_case", true);
  if (values.contains("strip_accents")) options.strip_accents = values["strip_accents"].get<bool>();
  options.split_cjk = values.value("split_cjk", true);
  return options;
}

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

std::vector<Token> tokens_in(const json& flat) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < flat.size(); i += 3) tokens.push_back({flat[i], flat[i + 1], flat[i + 2]});
  return tokens;
}

std::vector<std::string> pieces(const WordPiece& tokenizer, std::string_view text) {
  std::vector<std::string> names;
  for (const Token& token : tokenizer.encode(text)) names.push_back(tokenizer.vocabulary().token(token.id));
  return names;
}

TEST(WordPiece, TakesTheLongestPieces) {
  const WordPiece tokenizer(golden_vocabulary());
  EXPECT_THAT(pieces(tokenizer, "Unable, unabing THE"), ElementsAre("unable", ",", "un", "##ab", "##ing", "the"));
  EXPECT_THAT(pieces(tokenizer, ""), ElementsAre());
  EXPECT_THAT(tokenizer.encode(" Thé; "), ElementsAre(Token{*tokenizer.vocabulary().id("the"), 1, 5},
                                                      Token{*tokenizer.vocabulary().id(";"), 5, 6}));
}

TEST(WordPiece, HostileTextMatchesHuggingFace) {
  size_t count = 0;
  for (const json& variant : expected()["cases"]) {
    auto options = options_in<WordPieceOptions>(variant["options"]);
    options.max_word = variant["options"].value("max_word", 100);
    const WordPiece tokenizer(golden_vocabulary(), options);
    for (const json& text : variant["texts"]) {
      EXPECT_EQ(tokenizer.encode(bytes_of(text[0])), tokens_in(text[1])) << variant["options"] << " " << text[0];
      ++count;
    }
  }
  EXPECT_GT(count, 1000u);
}

TEST(WordPiece, EveryCodePointMatchesHuggingFace) {
  for (const json& variant : expected()["code_points"]) {
    const BasicTokenizer splitter(options_in<BasicTokenizerOptions>(variant["options"]));
    char32_t first = 0;
    for (const json& hash_expected : variant["hashes"]) {
      std::string text;
      for (char32_t code = first; code < first + 0x4000; ++code) {
        if (code >= 0xd800 && code < 0xe000) continue;
        if (!text.empty()) text += '\n';
        text += 'a';
        append_utf8(text, code);
        text += 'b';
      }
      Hash hash;
      splitter.each_word(text, 0, text.size(), [&](const Word& word) {
        for (char c : word.text) hash.add(uint64_t{static_cast<uint8_t>(c)});
        const SourceRange source = word.source(0, word.text.size());
        hash.add(uint64_t{source.begin});
        hash.add(uint64_t{source.end});
      });
      EXPECT_EQ(std::to_string(hash.value()), hash_expected.get<std::string>())
          << variant["options"] << " U+" << std::hex << uint32_t{first} << " and the following 0x4000 code points";
      first += 0x4000;
    }
    EXPECT_EQ(first, 0x110000u);
  }
}

TEST(WordPiece, SquadMatchesHuggingFace) {
  const std::string path = data_path("squad/dev-v1.1.json.gz"), vocabulary = data_path("bert-vocab/vocab.txt");
  if (path.empty() || vocabulary.empty())
    GTEST_SKIP() << "no squad or bert-vocab; set GODWIT_DATA to the dataset folder";
  const WordPiece tokenizer(read_vocabulary(vocabulary));
  const Squad squad = read_squad(path);
  std::vector<Token> tokens;
  for (const std::string& context : squad.contexts) tokenizer.encode(context, tokens);
  for (const SquadQuestion& question : squad.questions) tokenizer.encode(question.text, tokens);
  Hash hash;
  for (const Token& token : tokens) {
    hash.add(static_cast<uint64_t>(token.id));
    hash.add(uint64_t{token.begin});
    hash.add(uint64_t{token.end});
  }
  EXPECT_EQ(tokens.size(), expected()["squad_dev"]["tokens"].get<size_t>());
  EXPECT_EQ(std::to_string(hash.value()), expected()["squad_dev"]["hash"].get<std::string>());
}

// Words as long as the text: time and memory must be linear in the length.
TEST(WordPiece, WordsOfAMegabyte) {
  const WordPiece tokenizer(golden_vocabulary()), endless(golden_vocabulary(), {.max_word = 1 << 30});
  const int32_t unk = tokenizer.vocabulary().unk();
  for (const std::string word : {"a", "é", "a\u0301", "\u1112"}) {
    std::string text;
    while (text.size() < 1'000'000) text += word;
    const auto size = static_cast<uint32_t>(text.size());
    const uint32_t last = word == "a\u0301" ? size - 2 : size;  // a stripped accent at the end belongs to no token
    EXPECT_THAT(tokenizer.encode(text), ElementsAre(Token{unk, 0, last}));
    if (word != "\u1112") EXPECT_EQ(endless.encode(text).size(), text.size() / word.size());
    else EXPECT_THAT(endless.encode(text), ElementsAre(Token{unk, 0, size}));
  }
  EXPECT_EQ(tokenizer.encode(std::string(1'000'000, '[')).size(), 1'000'000u);
}

TEST(WordPiece, OneObjectMayBeUsedByAllThreads) {
  const WordPiece tokenizer(golden_vocabulary());
  const json& texts = expected()["cases"][0]["texts"];
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (const json& text : texts) wrong[t] += tokenizer.encode(bytes_of(text[0])) != tokens_in(text[1]);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

TEST(WordPiece, RefusesAMaximumWordLengthOfZero) {
  EXPECT_THAT(error_of([] { WordPiece(golden_vocabulary(), {.max_word = 0}); }), testing::HasSubstr("max_word is 0"));
}

}  // namespace wordpiece_test
}  // namespace godwit::data
