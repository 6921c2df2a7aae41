#include "data/text/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/philox.h"
#include "tests/data/files.h"

namespace godwit::data {
namespace corpus_test {

using testing::ElementsAre;
using testing::HasSubstr;

using Documents = std::vector<std::vector<std::string>>;

Documents documents_of(const Corpus& corpus) {
  Documents documents(static_cast<size_t>(corpus.documents()));
  for (int64_t d = 0; d < corpus.documents(); ++d)
    for (int64_t s = corpus.first_sentence(d); s < corpus.first_sentence(d + 1); ++s)
      documents[static_cast<size_t>(d)].emplace_back(corpus.sentence(s));
  return documents;
}

Documents cut(const std::string& text, Sentences rule) { return documents_of(Corpus(text, rule)); }

TEST(Corpus, BlankLinesSeparateDocuments) {
  const Documents expected{{"a b", "c."}, {"d", "e"}, {"f"}};
  for (const std::string text : {"a b\nc.\n\nd\ne\n\n\nf", "\n \na b\nc.\n \t \n  d \n e\n\n\n\nf\n",
                                 "\r\na b\r\nc.\r\n\r\nd\r\ne\r\n\r\nf\r\n\r\n"})
    EXPECT_EQ(cut(text, Sentences::lines), expected);
}

TEST(Corpus, SplitsSentencesAtTheirEnds) {
  EXPECT_EQ(cut("It rained. It\npoured! \"Did it?\" Yes (it did.) And so\non...\n\nNew. page", Sentences::split),
            (Documents{{"It rained.", "It\npoured!", "\"Did it?\"", "Yes (it did.)", "And so\non..."}, {"New. page"}}));
  EXPECT_EQ(cut("Pi is 3.14. 2 is not. “Quoted.” Éa. ", Sentences::split),
            (Documents{{"Pi is 3.14.", "2 is not.", "“Quoted.”", "Éa."}}));
  EXPECT_EQ(cut("i.e. this", Sentences::split), (Documents{{"i.e. this"}}));
  EXPECT_EQ(cut("...", Sentences::split), (Documents{{"..."}}));
}

TEST(Corpus, KnowsTheLinesOfSentences) {
  const Corpus corpus("\n a\nb\n\nc\n\nd\ne\n", Sentences::lines);
  EXPECT_THAT(corpus.lines(), ElementsAre(2, 3, 5, 7, 8));
  EXPECT_THAT(corpus.hold_out(2).first.lines(), ElementsAre(2, 3, 7, 8));
  EXPECT_THAT(corpus.hold_out(2).second.lines(), ElementsAre(5));
}

// Sentences contain all non-blank characters of any text, in order.
TEST(Corpus, KeepsAllCharacters) {
  RandomStream random(3, Purpose::test);
  const char alphabet[] = "aB.!?\"') \n\n\t\r”";
  for (int i = 0; i < 3000; ++i) {
    std::string text = "x";
    for (uint32_t n = random.below(40); n > 0; --n) text += alphabet[random.below(sizeof alphabet - 1)];
    for (const Sentences rule : {Sentences::lines, Sentences::split}) {
      std::string joined, all;
      for (const auto& document : cut(text, rule)) {
        EXPECT_FALSE(document.empty());
        for (const std::string& sentence : document) joined += sentence;
      }
      const auto strip = [](std::string s) {
        return std::erase_if(s, [](char c) { return isspace(static_cast<unsigned char>(c)); }), s;
      };
      EXPECT_EQ(strip(joined), strip(text));
    }
  }
}

TEST(Corpus, LongTextsTakeLinearTime) {
  const size_t n = 1 << 20;
  for (const auto& [begin, repeated, end] :
       {std::tuple{"", '.', ""}, std::tuple{"", ' ', "a"}, std::tuple{"a.", ' ', "b"}, std::tuple{"", '\n', "a"}}) {
    std::string text = begin;
    text.append(n, repeated).append(end);
    for (const Sentences rule : {Sentences::lines, Sentences::split}) EXPECT_EQ(Corpus(text, rule).documents(), 1);
  }
  std::string dots;
  for (size_t i = 0; i < n / 4; ++i) dots += ".  a";
  EXPECT_EQ(Corpus(dots, Sentences::split).sentences(), 1);
}

TEST(Corpus, RefusesBlankText) {
  for (const std::string text : {"", "\n", " \n\t\r\n "})
    EXPECT_THAT(error_of([&] { Corpus(text, Sentences::lines, "x.txt"); }), HasSubstr("x.txt: holds no text"));
}

TEST(Corpus, HoldsOutEveryNthDocument) {
  const auto [rest, held] = Corpus("a\nb\n\nc\n\nd\n\ne\nf\n\ng", Sentences::lines).hold_out(2);
  EXPECT_EQ(documents_of(rest), (Documents{{"a", "b"}, {"d"}, {"g"}}));
  EXPECT_EQ(documents_of(held), (Documents{{"c"}, {"e", "f"}}));
  EXPECT_THAT(error_of([] { Corpus("a\nb", Sentences::lines).hold_out(2); }), HasSubstr("1 document"));
  EXPECT_THAT(error_of([] { Corpus("a\n\nb", Sentences::lines).hold_out(1); }),
              HasSubstr("hold_out is 1, expected at least 2"));
}

TEST(Corpus, ReadsFiles) {
  TempFolder folder;
  const Bytes bytes{'a', '\n', '\n', 'b'};
  for (const Bytes& content : {bytes, gzip(bytes)}) {
    write(folder / "x.txt", content);
    EXPECT_EQ(documents_of(read_corpus(folder / "x.txt")), (Documents{{"a"}, {"b"}}));
  }
  write(folder / "x.txt", Bytes{});
  EXPECT_THAT(error_of([&] { read_corpus(folder / "x.txt"); }), HasSubstr("x.txt: holds no text"));
}

// A file in the package's container format: blocks of compress(1) codes, without the first three bytes of its header.
Bytes bible_bytes(const std::vector<Bytes>& blocks, uint32_t block) {
  Bytes bytes{'E', 'C', '0', '2'};
  bytes.resize(84);
  const auto add = [&](size_t word) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(word >> shift));
  };
  add(block);
  add(blocks.size());
  size_t at = 84 + 8 + 4 * (blocks.size() + 1) + 3;
  for (const Bytes& b : blocks) add(at), at += b.size();
  add(at);
  bytes.insert(bytes.end(), {0x1f, 0x9d, 0x90});
  for (const Bytes& b : blocks) bytes.insert(bytes.end(), b.begin(), b.end());
  return bytes;
}

// Packs 9-bit codes, least significant bit first.
Bytes codes(const std::vector<uint32_t>& values) {
  Bytes bytes((values.size() * 9 + 7) / 8);
  for (size_t i = 0; i < 9 * values.size(); ++i)
    bytes[i / 8] = static_cast<uint8_t>(bytes[i / 8] | (values[i / 9] >> (i % 9) & 1) << i % 8);
  return bytes;
}

TEST(Corpus, ReadsTheFormatOfTheDebianBiblePackage) {
  TempFolder folder;
  const auto letters = [](const std::string& text) { return std::vector<uint32_t>(text.begin(), text.end()); };
  std::vector<uint32_t> second = letters("Ge2:1 aa");
  second.insert(second.end(), {262, 265, 'b', '\n'});  // " a" (made at the eighth code); the code in progress: " a "
  write(folder / "bible", bible_bytes({codes(letters("Title\nGe1:1 In the\nGe1:2 And\n")), codes(second)}, 64));
  EXPECT_EQ(documents_of(read_corpus(folder / "bible")), (Documents{{"In the", "And"}, {"aa a a b"}}));

  write(folder / "bible", bible_bytes({codes({'a', 300})}, 64));
  EXPECT_THAT(error_of([&] { read_corpus(folder / "bible"); }), HasSubstr("code 300"));
  write(folder / "bible", bible_bytes({codes({'a', 'b', 'c'})}, 2));
  EXPECT_THAT(error_of([&] { read_corpus(folder / "bible"); }), HasSubstr("longer than the header says"));
  write(folder / "bible", Bytes{'E', 'C', '0', '2', 0});
  EXPECT_THAT(error_of([&] { read_corpus(folder / "bible"); }), HasSubstr("truncated"));
}

TEST(Corpus, ReadsTheInstalledBible) {
  const std::string path = "/usr/lib/bible.data";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "the package bible-kjv-text is not installed";
  const Corpus bible = read_corpus(path);
  EXPECT_EQ(bible.documents(), 1189) << "chapters";
  EXPECT_EQ(bible.sentences(), 31102) << "verses";
  EXPECT_EQ(bible.sentence(0), "In the beginning God created the heaven and the earth.");
  EXPECT_EQ(bible.sentence(31101), "The grace of our Lord Jesus Christ be with you all. Amen.");
}

// For any bytes, the reader returns a corpus or throws Error.
TEST(Corpus, SurvivesACorruptBible) {
  TempFolder folder;
  RandomStream random(5, Purpose::test);
  std::vector<uint32_t> values;
  for (int i = 0; i < 700; ++i)
    values.push_back(random.below(i < 10 ? 256 : 256 + static_cast<uint32_t>(std::min(i, 255))));
  const Bytes good = bible_bytes({codes(values), codes(values)}, 65536);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    Bytes bytes = good;
    for (uint32_t flips = random.below(4); flips-- > 0;)
      bytes[4 + random.below(static_cast<uint32_t>(bytes.size() - 4))] = static_cast<uint8_t>(random.next());
    if (random.below(3) == 0) bytes.resize(random.below(static_cast<uint32_t>(bytes.size())));
    write(folder / "bible", bytes);
    try {
      read_corpus(folder / "bible");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace corpus_test
}  // namespace godwit::data
