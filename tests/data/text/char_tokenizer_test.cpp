#include "data/text/char_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support.h"

namespace godwit::data {
namespace char_tokenizer_test {

using testing::ElementsAre, testing::HasSubstr;

CharTokenizer tokenizer_of(const std::string& text) {
  CharacterSet set;
  set.add(text);
  return CharTokenizer(set.sorted());
}

TEST(CharTokenizer, IdsFollowTheOrderOfCodePoints) {
  const CharTokenizer tokenizer = tokenizer_of("bé\n中a");
  EXPECT_EQ(tokenizer.size(), 5);
  EXPECT_THAT(tokenizer.encode("中ab\né"), ElementsAre(4, 1, 2, 0, 3));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{4, 1, 2, 0, 3}), "中ab\né");
  EXPECT_EQ(tokenizer.end_of_text(), std::nullopt);
}

TEST(CharTokenizer, InvalidBytesAreReplacementCharacters) {
  const CharTokenizer tokenizer = tokenizer_of("a\xff");
  EXPECT_THAT(tokenizer.encode("\xc3\x61"), ElementsAre(1, 0));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{1}), "\xef\xbf\xbd");
}

TEST(CharTokenizer, AnUnknownCharacterIsNamed) {
  const CharTokenizer tokenizer = tokenizer_of("ab");
  EXPECT_THAT(error_of([&] { tokenizer.encode("abé"); }), HasSubstr("the character 'é' at byte 2"));
  EXPECT_THAT(error_of([&] { tokenizer.encode("ab\x1b"); }), HasSubstr("the character '\\x1b' at byte 2"));
  EXPECT_THAT(error_of([&] { tokenizer.decode(std::vector<int32_t>{2}); }), HasSubstr("the id 2 is not below"));
}

TEST(CharTokenizer, RoundTripsThroughAFolder) {
  const TempFolder folder;
  const CharTokenizer tokenizer = tokenizer_of("a\"\\\n\t é中\x01");
  tokenizer.save(folder.str());
  ASSERT_TRUE(has_tokenizer(folder.str()));
  const auto loaded = load_tokenizer(folder.str());
  EXPECT_EQ(loaded->fingerprint(), tokenizer.fingerprint());
  EXPECT_EQ(loaded->encode("中\x01"), tokenizer.encode("中\x01"));
  EXPECT_NE(loaded->fingerprint(), tokenizer_of("ab").fingerprint());
}

TEST(CharTokenizer, RefusesBadFiles) {
  const TempFolder folder;
  const std::string path = folder / "characters.json";
  const auto message = [&](const std::string& json) {
    write(path, Bytes(json.begin(), json.end()));
    return error_of([&] { load_tokenizer(path); });
  };
  EXPECT_THAT(message("[]"), HasSubstr("characters.json: tokenizer: the vocabulary has no characters"));
  EXPECT_THAT(message("[\"ab\"]"), HasSubstr("[0]: is \"ab\", expected one character"));
  EXPECT_THAT(message("[\"b\", \"a\"]"), HasSubstr("character 1, 'a', does not follow 'b'"));
  EXPECT_THAT(error_of([&] { load_tokenizer(folder / "none"); }), HasSubstr("none: no such file"));
}

}  // namespace char_tokenizer_test
}  // namespace godwit::data
