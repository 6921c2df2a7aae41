#include "data/tokenizer_config.h"

#include <gmock/gmock.h>

#include "tests/support.h"

namespace godwit::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TokenizerConfig : public testing::Test {
 protected:
  WordPieceOptions read_text(const std::string& text) {
    write(path_, Bytes(text.begin(), text.end()));
    return read_tokenizer_config(path_);
  }
  std::string error_for(const std::string& text) {
    return error_of([&] { read_text(text); });
  }

  TempFolder folder_;
  std::string path_ = folder_ / "tokenizer_config.json";
};

TEST_F(TokenizerConfig, ReadsWhatHuggingFaceWrites) {
  const WordPieceOptions cased = read_text(R"({"do_lower_case": false, "unk_token": "[UNK]", "never_split": null,
      "tokenize_chinese_chars": false, "strip_accents": true, "tokenizer_class": "BertTokenizer", "model_max_length": 512})");
  EXPECT_FALSE(cased.lower_case);
  EXPECT_EQ(cased.strip_accents, true);
  EXPECT_FALSE(cased.split_cjk);
  for (const char* text :
       {"{}", R"({"strip_accents": null, "do_basic_tokenize": true, "tokenizer_class": "BertTokenizerFast"})"}) {
    const WordPieceOptions options = read_text(text);
    EXPECT_TRUE(options.lower_case && options.split_cjk);
    EXPECT_EQ(options.strip_accents, std::nullopt);
    EXPECT_EQ(options.max_word, 100);
  }
}

TEST_F(TokenizerConfig, ComesBack) {
  for (const WordPieceOptions& options : {WordPieceOptions{}, WordPieceOptions{.lower_case = false, .split_cjk = false},
                                          WordPieceOptions{.strip_accents = false}}) {
    write_tokenizer_config(path_, options);
    const WordPieceOptions found = read_tokenizer_config(path_);
    EXPECT_EQ(found.lower_case, options.lower_case);
    EXPECT_EQ(found.strip_accents, options.strip_accents);
    EXPECT_EQ(found.split_cjk, options.split_cjk);
  }
}

TEST_F(TokenizerConfig, RefusesOtherTokenizersAndMalformedFiles) {
  EXPECT_THAT(error_for(R"({"do_lower_case": 1})"),
              AllOf(HasSubstr(path_ + ": do_lower_case: "), HasSubstr("found 1")));
  EXPECT_THAT(error_for(R"({"strip_accents": "no"})"), HasSubstr("strip_accents: expected true or false"));
  EXPECT_THAT(error_for(R"({"do_basic_tokenize": false})"), HasSubstr("do_basic_tokenize: is false"));
  EXPECT_THAT(error_for(R"({"tokenizer_class": "RobertaTokenizer"})"),
              HasSubstr("\"RobertaTokenizer\" is another tokenizer"));
  EXPECT_THAT(error_for("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of([&] { read_tokenizer_config(folder_ / "none"); }), HasSubstr("none: no such file"));
  EXPECT_THAT(error_of([&] { write_tokenizer_config(folder_ / "x", {.max_word = 7}); }), HasSubstr("max_word 7"));
  EXPECT_THAT(error_of([&] { write_tokenizer_config(folder_ / "none/x", {}); }),
              HasSubstr("none/x: cannot be written"));
}

}  // namespace
}  // namespace godwit::data
