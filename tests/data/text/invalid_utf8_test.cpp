#include "data/text/invalid_utf8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/text/corpus.h"
#include "data/text/token_data.h"
#include "data/text/tsv_dataset.h"
#include "data/text/word_vocabulary.h"
#include "tests/support.h"

namespace godwit::data {
namespace invalid_utf8_test {

TEST(InvalidUtf8, CountsSequencesAndNamesTheFirst) {
  InvalidUtf8 invalid;
  invalid.add("a.txt", "é\xef\xbf\xbd");
  EXPECT_EQ(invalid.notice("convert it"), "") << "a U+FFFD of the text is valid";
  invalid.add("b.txt", "é\xe4\xbd \xff");
  invalid.add("c.txt", "\xff");
  EXPECT_EQ(invalid.count, 3);
  EXPECT_EQ(invalid.notice("convert it"),
            "3 byte sequences of the text are not valid UTF-8, the first in b.txt at byte 2; convert it");
}

TEST(InvalidUtf8, EveryReaderOfTextCounts) {
  const TempFolder folder;
  const auto counted = [&](const std::string& text, const auto& read) {
    write(folder / "x", Bytes(text.begin(), text.end()));
    InvalidUtf8 invalid;
    read(folder / "x", &invalid);
    return std::to_string(invalid.count) + " " + invalid.first;
  };
  const auto place = [&](int at) { return "1 " + (folder / "x") + " at byte " + std::to_string(at); };
  EXPECT_EQ(counted("na\xefve", [](const auto& x, auto* n) { read_corpus(x, Sentences::lines, n); }), place(2));
  const std::string mark = "\xef\xbb\xbf";
  EXPECT_EQ(counted(mark + "na\xefve", [](const auto& x, auto* n) { read_corpus(x, Sentences::lines, n); }), place(5));
  EXPECT_EQ(counted(mark + "na\xefve", [](const auto& x, auto* n) { *n = load_token_data({.path = x}).invalid; }),
            place(5));
  EXPECT_EQ(counted("a na\xefve", [](const auto& x, auto* n) { read_word_text(x, WordSplit::spaces, n); }), place(4));
  EXPECT_EQ(counted("<eos>\n\xef", [](const auto& x, auto* n) { read_word_vocabulary(x, n); }), place(6));
  const std::string rows = "sentence\tlabel\n\xef\t0\nb\t1\n";
  EXPECT_EQ(counted(rows, [](const auto& x, auto* n) { read_tsv_dataset(x, n); }), place(15));
  EXPECT_EQ(counted(rows,
                    [](const auto& x, auto* n) {
                      read_tsv_dataset(x, {{"0", "1"}, true, x, ""}, n);
                    }),
            place(15));
}

}  // namespace invalid_utf8_test
}  // namespace godwit::data
