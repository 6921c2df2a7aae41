#include "engine/excerpt.h"

#include <gtest/gtest.h>

namespace godwit {
namespace excerpt_test {

TEST(Excerpt, KeepsOrdinaryText) {
  for (const char* text : {"", "bert.encoder.layer.0", "naïve 漢字 😀", "a\\b"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_EQ(excerpt(text), text);
  }
}

TEST(Excerpt, EscapesControlCharacters) {
  EXPECT_EQ(printable("a\x1b[2J\r\n\t\x7f"), "a\\x1b[2J\\r\\n\\t\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\u009b2J"), "\\u009b2J") << "C1 control character, equivalent to ESC [";
  EXPECT_EQ(printable("a\u202eb\u2028\u2066"), "a\\u202eb\\u2028\\u2066") << "text direction, line separator";
}

TEST(Excerpt, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("\x9b"
                      "2J"),
            "\\x9b2J");
  EXPECT_EQ(printable("\xc0\x8a"), "\\xc0\\x8a") << "overlong encoding of a line break";
  EXPECT_EQ(printable("\xe0\x80\x8a"), "\\xe0\\x80\\x8a");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a surrogate pair";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above U+10FFFF";
  EXPECT_EQ(printable("\xe6\xbc"), "\\xe6\\xbc") << "truncated sequence";
}

TEST(Excerpt, TruncatesLongText) {
  EXPECT_EQ(excerpt("abcdef", 6), "abcdef");
  EXPECT_EQ(excerpt("abcdefg", 6), "abcdef…");
  EXPECT_EQ(excerpt("abé", 3), "ab…") << "code points are not split";
  EXPECT_EQ(excerpt("a😀", 4), "a…");
  EXPECT_LT(excerpt(std::string(500000, 'x')).size(), 110u);
  EXPECT_LT(excerpt(std::string(500000, '\x80')).size(), 410u);
}

TEST(Excerpt, ListsTheFirstEntries) {
  EXPECT_EQ(excerpts({}), "");
  EXPECT_EQ(excerpts({"a", "b\n"}), "a, b\\n");
  EXPECT_EQ(excerpts({"a", "b", "c", "d"}, 2), "a, b and 2 more");
}

}  // namespace excerpt_test
}  // namespace godwit
