#include "engine/utf8.h"

#include <gmock/gmock.h>

#include <vector>

namespace godwit {
namespace utf8_test {

using testing::ElementsAre;

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string text;
    const uint32_t bytes = append_utf8(text, code);
    const CodePoint found = decode_utf8(text, 0);
    ASSERT_TRUE(found.valid && found.value == code && found.bytes == bytes && text.size() == bytes) << uint32_t{code};
  }
}

// The byte length of each code point; negative for replaced bytes.
std::vector<int> lengths(std::string_view text) {
  std::vector<int> lengths;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    EXPECT_EQ(code.valid || code.value == kReplacement, true);
    lengths.push_back(code.valid ? static_cast<int>(code.bytes) : -static_cast<int>(code.bytes));
    at += code.bytes;
  }
  return lengths;
}

// The examples of "maximal subparts" in the Unicode standard (section 3.9, tables 3-8 to 3-11); Python does the same.
TEST(Utf8, ReplacesEachMaximalSubpartOnce) {
  EXPECT_THAT(lengths("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"), ElementsAre(-1, -1, -1, -1, -1, -1, -1, -1, 1));
  EXPECT_THAT(lengths("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"), ElementsAre(-1, -1, -1, -1, -1, -1, -1, -1, 1));
  EXPECT_THAT(lengths("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"), ElementsAre(-1, -1, -1, -1, -1, 1, -1, -1, 1));
  EXPECT_THAT(lengths("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), ElementsAre(-2, -1, -3, -2, 1));
  EXPECT_THAT(lengths("\xe2\x82"), ElementsAre(-2));
  EXPECT_THAT(lengths("\xf0\x9f\x98"), ElementsAre(-3));
}

}  // namespace utf8_test
}  // namespace godwit
