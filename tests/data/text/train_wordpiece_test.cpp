#include "data/text/train_wordpiece.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "engine/context.h"
#include "engine/philox.h"
#include "tests/support.h"

namespace godwit::data {
namespace train_wordpiece_test {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kSpecial = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

std::vector<std::string> learned(const Vocabulary& vocabulary) {
  EXPECT_TRUE(std::equal(kSpecial.begin(), kSpecial.end(), vocabulary.tokens().begin()));
  return {vocabulary.tokens().begin() + 5, vocabulary.tokens().end()};
}

std::vector<std::string> repeated(const std::map<std::string, int>& counts) {
  std::vector<std::string> texts;
  for (const auto& [word, count] : counts) texts.insert(texts.end(), static_cast<size_t>(count), word);
  return texts;
}

// Texts of words over a few letters: many pairs are equally frequent, and pieces can be made in several ways.
std::vector<std::string> random_texts(uint64_t seed, int words, int letters) {
  RandomStream random(seed, Purpose::test);
  std::vector<std::string> texts;
  for (int i = 0; i < words; ++i) {
    std::string word;
    for (uint32_t n = 1 + random.below(9); n-- > 0;) word += static_cast<char>('a' + random.below(uint32_t(letters)));
    if (texts.empty() || random.below(5) == 0) texts.push_back(word);
    else texts.back() += " " + word;
  }
  return texts;
}

// Reference implementation: recounts all pairs before each merge.
std::vector<std::string> train_slowly(const std::vector<std::string>& texts, size_t size, int64_t min_frequency) {
  std::vector<std::vector<int>> words;
  std::vector<std::string> tokens = kSpecial;
  const auto id_of = [&](const std::string& token) {
    const auto found = std::find(tokens.begin(), tokens.end(), token);
    if (found == tokens.end()) tokens.push_back(token);
    return static_cast<int>(std::find(tokens.begin(), tokens.end(), token) - tokens.begin());
  };
  std::string firsts, insides;
  for (const std::string& text : texts)
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ') continue;
      firsts += text[i];
      if (i > 0 && text[i - 1] != ' ') insides += text[i];
    }
  std::sort(firsts.begin(), firsts.end());
  std::sort(insides.begin(), insides.end());
  for (char c : firsts) id_of({c});
  for (char c : insides) id_of(std::string("##") + c);
  for (const std::string& text : texts)
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ') continue;
      if (i == 0 || text[i - 1] == ' ') words.push_back({id_of({text[i]})});
      else words.back().push_back(id_of(std::string("##") + text[i]));
    }
  while (tokens.size() < size) {
    std::map<std::pair<int, int>, int64_t> counts;
    for (const auto& word : words)
      for (size_t i = 1; i < word.size(); ++i) ++counts[{word[i - 1], word[i]}];
    if (counts.empty()) break;
    const auto best = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });  // the first
    if (best->second < min_frequency) break;
    const auto [a, b] = best->first;
    const int merged = id_of(tokens[size_t(a)] + tokens[size_t(b)].substr(2));
    for (auto& word : words)
      for (size_t i = 1; i < word.size(); ++i)
        if (word[i - 1] == a && word[i] == b) {
          word[i - 1] = merged;
          word.erase(word.begin() + static_cast<std::ptrdiff_t>(i));
        }
  }
  return tokens;
}

TEST(TrainWordPiece, MergesTheMostFrequentPair) {
  const auto texts = repeated({{"hug", 10}, {"pug", 5}, {"pun", 12}, {"bun", 4}, {"hugs", 5}, {"x", 1}});
  // Counts: ##ug 20, ##un 16, hug 15, pun 12, then pug and hugs 5 (p is older than hug), bun 4.
  EXPECT_THAT(learned(train_wordpiece(texts, {.size = 100})),
              ElementsAre("b", "g", "h", "n", "p", "s", "u", "x", "##g", "##n", "##s", "##u", "##ug", "##un", "hug",
                          "pun", "pug", "hugs", "bun"));
  EXPECT_THAT(learned(train_wordpiece(texts, {.size = 19})).back(), "##un");
  EXPECT_THAT(learned(train_wordpiece(texts, {.size = 100, .min_frequency = 5})).back(), "hugs");
}

TEST(TrainWordPiece, MatchesRecountingBeforeEachMerge) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const auto texts = random_texts(seed, 120, 2 + static_cast<int>(seed % 4));
    const int64_t min_frequency = 1 + static_cast<int64_t>(seed % 3);
    for (int64_t size : {40, 1000})
      EXPECT_EQ(train_wordpiece(texts, {.size = size, .min_frequency = min_frequency}).tokens(),
                train_slowly(texts, static_cast<size_t>(size), min_frequency))
          << "seed " << seed << " size " << size;
  }
}

TEST(TrainWordPiece, SameTokensForAnyThreadCountAndOrder) {
  auto texts = random_texts(7, 20'000, 20);
  Context wanted = context();
  wanted.threads = 1;
  std::vector<std::string> expected;
  {
    const ContextGuard guard(wanted);
    expected = train_wordpiece(texts, {.size = 700}).tokens();
  }
  EXPECT_EQ(expected.size(), 700u);
  std::reverse(texts.begin(), texts.end());
  for (int threads : {1, 2, 3, 8}) {
    wanted.threads = threads;
    const ContextGuard guard(wanted);
    EXPECT_EQ(train_wordpiece(texts, {.size = 700}).tokens(), expected) << threads << " threads";
  }
}

TEST(TrainWordPiece, EncodesItsOwnTextWithoutUnknownWords) {
  std::vector<std::string> texts = {"Élan vital, 中文 and naïve Straße!", "The élan of naïve STRASSE 한글 😀😀 x\xff"};
  texts.emplace_back(101, 'z').append(" z");
  const WordPiece tokenizer(train_wordpiece(texts, {.size = 200, .min_frequency = 1}));
  for (size_t i = 0; i < 2; ++i)
    for (const Token& token : tokenizer.encode(texts[i])) EXPECT_NE(token.id, tokenizer.vocabulary().unk()) << texts[i];
  EXPECT_TRUE(tokenizer.vocabulary().id("elan"));  // normalized as by the tokenizer
  EXPECT_TRUE(tokenizer.vocabulary().id("z"));
  EXPECT_FALSE(tokenizer.vocabulary().id("##z"));  // occurs only in a word that encode() maps to [UNK]
}

TEST(TrainWordPiece, KeepsTheMostFrequentCharacters) {
  const std::vector<std::string> texts = {"aaa aab aab abc", "ad"};
  EXPECT_THAT(learned(train_wordpiece(texts, {.size = 100, .min_frequency = 3, .alphabet = 2})),
              ElementsAre("a", "b", "##a", "##b", "aa"));
  EXPECT_THAT(learned(train_wordpiece(texts, {.size = 11, .alphabet = 3})),
              ElementsAre("a", "b", "c", "##a", "##b", "##c"));  // d is as frequent as c
}

TEST(TrainWordPiece, EmptyTextsGiveOnlySpecialTokens) {
  for (const std::vector<std::string>& texts : {std::vector<std::string>{}, {"", " \n"}, {std::string("\0\xff", 2)}})
    EXPECT_EQ(train_wordpiece(texts).tokens(), kSpecial);
}

TEST(TrainWordPiece, RefusesInvalidArguments) {
  const std::vector<std::string> texts = {"ab cd"};
  EXPECT_THAT(error_of([&] { train_wordpiece(texts, {.size = 10}); }),
              AllOf(HasSubstr("10 tokens has no room"), HasSubstr("11 together")));
  EXPECT_THAT(error_of([&] { train_wordpiece(texts, {.alphabet = 0}); }), HasSubstr("alphabet is 0"));
  EXPECT_THAT(error_of([&] { train_wordpiece(texts, {.words = {.max_word = 0}}); }), HasSubstr("max_word is 0"));
  const ContextGuard guard([](Context& next) { next.threads = 3; });
  EXPECT_THAT(error_of([&] { train_wordpiece([](std::string&) -> bool { fail("disk on fire"); }); }),
              HasSubstr("disk on fire"));
}

}  // namespace train_wordpiece_test
}  // namespace godwit::data
