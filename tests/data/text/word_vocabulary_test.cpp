#include "data/text/word_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/files.h"

namespace godwit::data {
namespace word_vocabulary_test {

using testing::ElementsAre, testing::HasSubstr;

std::vector<std::string> words_of(const WordText& text) {
  std::vector<std::string> all;
  text.each_word([&](std::string_view word, int64_t line) { all.push_back(std::to_string(line) + std::string(word)); });
  return all;
}

TEST(WordText, SplitsAtWhiteSpace) {
  EXPECT_THAT(words_of({.text = " a  b\tc \r\n\nIt's,\n", .name = "x"}),
              ElementsAre("1a", "1b", "1c", "1<eos>", "2<eos>", "3It's,", "3<eos>"));
  EXPECT_THAT(words_of({.text = "a", .name = "x"}), ElementsAre("1a", "1<eos>"));
  EXPECT_TRUE(words_of({.text = "", .name = "x"}).empty());
  EXPECT_THAT(words_of({.text = "a\nb\n", .name = "x", .split = WordSplit::spaces, .lines = {7, 9}}),
              ElementsAre("7a", "7<eos>", "9b", "9<eos>"));
}

TEST(WordText, SplitsAroundPunctuation) {
  EXPECT_THAT(words_of({.text = "In the Éarth, yes.\n", .name = "x", .split = WordSplit::basic}),
              ElementsAre("1in", "1the", "1earth", "1,", "1yes", "1.", "1<eos>"));
}

TEST(WordVocabulary, FrequentWordsComeFirst) {
  const WordText text{.text = "c b\na b\nb <unk>\n", .name = "x"};
  EXPECT_THAT(build_word_vocabulary(text, 100).tokens(), ElementsAre("<eos>", "b", "<unk>", "a", "c"));
  EXPECT_THAT(build_word_vocabulary(text, 5).tokens(), ElementsAre("<eos>", "b", "<unk>", "a", "c"));
  EXPECT_THAT(build_word_vocabulary(text, 4).tokens(), ElementsAre("<eos>", "b", "<unk>", "a"));
  EXPECT_THAT(build_word_vocabulary(text, 3).tokens(), ElementsAre("<eos>", "b", "<unk>"));
  const WordText plain{.text = "c b\na b\nb\n", .name = "x"};
  EXPECT_THAT(build_word_vocabulary(plain, 4).tokens(), ElementsAre("<eos>", "b", "a", "c"));
  EXPECT_THAT(build_word_vocabulary(plain, 3).tokens(), ElementsAre("<eos>", "b", "<unk>"));
  EXPECT_THAT(error_of([&] { build_word_vocabulary(plain, 2); }), HasSubstr("expected at least 3"));
}

TEST(WordVocabulary, Encodes) {
  const WordVocabulary limited(std::vector<std::string>{"<eos>", "b", "<unk>"});
  const EncodedText encoded = encode_words({.text = "b x\n<unk> y\n", .name = "x"}, limited);
  EXPECT_THAT(encoded.tokens, ElementsAre(1, 2, 0, 2, 2, 0));
  EXPECT_EQ(encoded.unknown, 2);
  EXPECT_EQ(limited.token(1), "b");
  EXPECT_THAT(error_of([&] { limited.token(3); }), HasSubstr("id 3"));

  const WordVocabulary closed(std::vector<std::string>{"<eos>", "b"});
  EXPECT_THAT(error_of([&] { encode_words({.text = "b\nb zoo\n", .name = "valid.txt"}, closed); }),
              HasSubstr("valid.txt: line 2: 'zoo' is not in the vocabulary, which has no <unk>; add <unk> to it"));
}

TEST(WordVocabulary, RefusesEmptyTexts) {
  const WordVocabulary vocabulary(std::vector<std::string>{"<eos>"});
  for (const std::string text : {"", "\n", " \n\t\n"}) {
    EXPECT_THAT(error_of([&] { build_word_vocabulary({.text = text, .name = "x.txt"}, 10); }),
                HasSubstr("x.txt: holds no words"));
    EXPECT_THAT(error_of([&] { encode_words({.text = text, .name = "x.txt"}, vocabulary); }),
                HasSubstr("x.txt: holds no words"));
  }
}

TEST(WordVocabulary, Files) {
  TempFolder folder;
  const WordVocabulary vocabulary(std::vector<std::string>{"b", "<eos>", "ü"});
  write_word_vocabulary(folder / "vocab.txt", vocabulary);
  const WordVocabulary again = read_word_vocabulary(folder / "vocab.txt");
  EXPECT_EQ(again.tokens(), vocabulary.tokens());
  EXPECT_EQ(again.hash(), vocabulary.hash());
  const auto error = [&](const std::string& text) {
    write(folder / "vocab.txt", Bytes(text.begin(), text.end()));
    return error_of([&] { read_word_vocabulary(folder / "vocab.txt"); });
  };
  EXPECT_THAT(error("a\nb\na\n<eos>\n"), HasSubstr("vocab.txt: vocabulary: 'a' occurs in line 1 and again in line 3"));
  EXPECT_THAT(error("a\n"), HasSubstr("none of its 1 words is <eos>"));
  EXPECT_THAT(error("a\n\n<eos>\n"), HasSubstr("line 2 is empty"));
  EXPECT_THAT(error("a b\n<eos>\n"), HasSubstr("the word of line 1 contains white space"));
  EXPECT_THAT(error_of([&] { read_word_vocabulary(folder / "none"); }), HasSubstr("none"));

  const Bytes text{'a', ' ', 'b', '\n'};
  for (const Bytes& content : {text, gzip(text)}) {
    write(folder / "x.txt", content);
    EXPECT_THAT(words_of(read_word_text(folder / "x.txt", WordSplit::spaces)), ElementsAre("1a", "1b", "1<eos>"));
  }
}

// The published counts of the Penn Treebank.
// A file that begins with the bytes of a mark, or like UTF-16.
TEST(WordVocabulary, FilesKeepAnyFirstWord) {
  const TempFolder folder;
  const std::string file = folder.str() + "/vocab.txt";
  for (const std::string& first : {std::string("\xef\xbb\xbf" "er."), std::string("\xff\xfe"), std::string("\xfe\xff"),
                                   std::string("\0a", 2), std::string("a\0", 2), std::string("a")}) {
    const WordVocabulary vocabulary({first, "<eos>"});
    write_word_vocabulary(file, vocabulary);
    EXPECT_EQ(read_word_vocabulary(file).tokens(), vocabulary.tokens());
  }
}

TEST(WordVocabulary, PennTreebank) {
  const std::string train = data_path("ptb/ptb.train.txt");
  if (train.empty()) GTEST_SKIP() << "no ptb; set GODWIT_DATA to the dataset folder";
  const WordText text = read_word_text(train, WordSplit::spaces);
  const WordVocabulary vocabulary = build_word_vocabulary(text, 10000);
  EXPECT_EQ(vocabulary.size(), 10000);
  EXPECT_EQ(vocabulary.token(0), "the");
  EXPECT_EQ(std::ssize(encode_words(text, vocabulary).tokens), 929589);
  for (const auto& [file, tokens] : {std::pair{"ptb/ptb.valid.txt", 73760}, {"ptb/ptb.test.txt", 82430}}) {
    const EncodedText encoded = encode_words(read_word_text(data_path(file), WordSplit::spaces), vocabulary);
    EXPECT_EQ(std::ssize(encoded.tokens), tokens);
    EXPECT_EQ(encoded.unknown, 0);
  }
}

}  // namespace word_vocabulary_test
}  // namespace godwit::data
