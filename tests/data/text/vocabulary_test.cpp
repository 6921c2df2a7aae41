#include "data/text/vocabulary.h"

#include <gmock/gmock.h>

#include "tests/support.h"

namespace godwit::data {
namespace vocabulary_test {

using testing::AllOf;
using testing::HasSubstr;

const std::vector<std::string> kSpecial = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kSpecial.begin(), kSpecial.end());
  return more;
}

void write_text(const std::string& path, const std::string& text) { write(path, Bytes(text.begin(), text.end())); }

TEST(Vocabulary, FindsTokensAndIds) {
  const Vocabulary vocabulary({"a", "[MASK]", "[SEP]", "é", "[CLS]", "[UNK]", "##a", "[PAD]"});
  EXPECT_EQ(vocabulary.size(), 8);
  EXPECT_EQ(vocabulary.id("é"), 3);
  EXPECT_EQ(vocabulary.id("##a"), 6);
  EXPECT_EQ(vocabulary.id("b"), std::nullopt);
  EXPECT_EQ(vocabulary.token(0), "a");
  EXPECT_EQ(vocabulary.pad(), 7);
  EXPECT_EQ(vocabulary.unk(), 5);
  EXPECT_EQ(vocabulary.cls(), 4);
  EXPECT_EQ(vocabulary.sep(), 2);
  EXPECT_EQ(vocabulary.mask(), 1);
  EXPECT_THAT(error_of([&] { vocabulary.token(8); }), HasSubstr("id 8 is not among its 8 tokens"));
  EXPECT_THAT(error_of([&] { vocabulary.token(-1); }), HasSubstr("id -1"));
  const Vocabulary copy = vocabulary;
  EXPECT_EQ(copy.id("[PAD]"), 7);
}

TEST(Vocabulary, HashDependsOnTokensAndTheirOrder) {
  const uint64_t hash = Vocabulary(with({"a", "b"})).hash();
  EXPECT_EQ(Vocabulary(with({"a", "b"})).hash(), hash);
  EXPECT_NE(Vocabulary(with({"b", "a"})).hash(), hash);
  EXPECT_NE(Vocabulary(with({"ab"})).hash(), hash);
}

TEST(Vocabulary, RefusesInvalidVocabularies) {
  const auto error = [](std::vector<std::string> tokens) { return error_of([&] { Vocabulary{tokens}; }); };
  EXPECT_THAT(error(with({"x", "y", "x"})), HasSubstr("'x' occurs in line 6 and again in line 8"));
  EXPECT_THAT(error(with({"x", ""})), HasSubstr("line 7 is empty"));
  EXPECT_THAT(error(with({"x\ny"})), HasSubstr("line 6 contains a line break"));
  EXPECT_THAT(error(with({"\xc3"})), HasSubstr("line 6 is not UTF-8"));
  EXPECT_THAT(error({}), HasSubstr("[PAD]"));
  for (const std::string& name : kSpecial) {
    std::vector<std::string> tokens = with({"a"});
    std::erase(tokens, name);
    EXPECT_THAT(error(tokens), HasSubstr("none of its 5 tokens is " + name));
  }
}

TEST(Vocabulary, FilesRoundTrip) {
  TempFolder folder;
  const Vocabulary vocabulary(with({"a", "##é", "中", " "}));
  const std::string path = folder / "vocab.txt";
  write_vocabulary(path, vocabulary);
  EXPECT_EQ(read_vocabulary(path).tokens(), vocabulary.tokens());
  write_text(path, "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\nlast");  // line ends of other systems
  EXPECT_EQ(read_vocabulary(path).tokens(), with({"last"}));
}

TEST(Vocabulary, ErrorsNameTheFile) {
  TempFolder folder;
  const std::string path = folder / "vocab.txt";
  EXPECT_THAT(error_of([&] { read_vocabulary(path); }), HasSubstr(path + ": no such file"));
  EXPECT_THAT(error_of([&] { read_vocabulary(folder.str()); }), HasSubstr("is a folder"));
  write_text(path, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n\na\n");
  EXPECT_THAT(error_of([&] { read_vocabulary(path); }), AllOf(HasSubstr(path), HasSubstr("line 6 is empty")));
  write_text(path, "");
  EXPECT_THAT(error_of([&] { read_vocabulary(path); }), AllOf(HasSubstr(path), HasSubstr("0 tokens")));
  EXPECT_THAT(error_of([&] { write_vocabulary(folder / "none/vocab.txt", Vocabulary(kSpecial)); }),
              HasSubstr("cannot be written"));
}

}  // namespace vocabulary_test
}  // namespace godwit::data
