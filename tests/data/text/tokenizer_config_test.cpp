#include "data/text/tokenizer_config.h"

#include <gmock/gmock.h>

#include "tests/support.h"

namespace godwit::data {
namespace tokenizer_config_test {

using testing::AllOf;
using testing::HasSubstr;

class TokenizerFolder : public testing::Test {
 protected:
  TokenizerConfig read_text(const std::string& text, const WordPieceOptions* beside = nullptr) {
    write(path_, Bytes(text.begin(), text.end()));
    return read_tokenizer_config(path_, beside);
  }
  std::string error_for(const std::string& text, const WordPieceOptions* beside = nullptr) {
    return error_of([&] { read_text(text, beside); });
  }

  TempFolder folder_;
  std::string path_ = folder_ / "tokenizer_config.json";
};

TEST_F(TokenizerFolder, ReadsFilesOfHuggingFace) {
  const WordPieceOptions cased = read_text(R"({"do_lower_case": false, "unk_token": "[UNK]", "never_split": null,
      "tokenize_chinese_chars": false, "strip_accents": true, "tokenizer_class": "BertTokenizer", "model_max_length": 512})")
                                     .options;
  EXPECT_FALSE(cased.lower_case);
  EXPECT_EQ(cased.strip_accents, true);
  EXPECT_FALSE(cased.split_cjk);
  for (const char* text :
       {"{}", R"({"strip_accents": null, "do_basic_tokenize": true, "tokenizer_class": "BertTokenizerFast"})"}) {
    const WordPieceOptions options = read_text(text).options;
    EXPECT_TRUE(options.lower_case && options.split_cjk);
    EXPECT_EQ(options.strip_accents, std::nullopt);
    EXPECT_EQ(options.max_word, 100);
  }
}

TEST_F(TokenizerFolder, AnOptionReplacesTheLetterCaseOfBothFiles) {
  const WordPieceOptions beside;  // lower_case
  const std::string text = R"({"do_lower_case": false, "strip_accents": true})";
  EXPECT_THAT(error_for(text, &beside), HasSubstr("do_lower_case: is false"));
  for (const bool lower_case : {false, true}) {
    const WordPieceOptions options = read_tokenizer_config(path_, &beside, lower_case).options;
    EXPECT_EQ(options.lower_case, lower_case);
    EXPECT_EQ(options.strip_accents, true);
  }
}

TEST_F(TokenizerFolder, RoundTrips) {
  for (const WordPieceOptions& options : {WordPieceOptions{}, WordPieceOptions{.lower_case = false, .split_cjk = false},
                                          WordPieceOptions{.strip_accents = false}}) {
    write_tokenizer_config(path_, {.options = options});
    const WordPieceOptions found = read_tokenizer_config(path_).options;
    EXPECT_EQ(found.lower_case, options.lower_case);
    EXPECT_EQ(found.strip_accents, options.strip_accents);
    EXPECT_EQ(found.split_cjk, options.split_cjk);
  }
}

// Every digit is kept. transformers writes the second value if there is no limit.
TEST_F(TokenizerFolder, KeepsTheMaximumLength) {
  for (const std::string length : {"512", "1000000000000000019884624838656"}) {
    write_tokenizer_config(path_, read_text("{\"model_max_length\": " + length + "}"));
    const Bytes bytes = read(path_);
    EXPECT_THAT(std::string(bytes.begin(), bytes.end()), HasSubstr("\"model_max_length\": " + length + ",\n"));
  }
  for (const char* text : {"{}", R"({"model_max_length": null})"}) {
    write_tokenizer_config(path_, read_text(text));
    EXPECT_EQ(read_tokenizer_config(path_).model_max_length, std::nullopt);
  }
  for (const char* length : {"0", "-1", "0.5", "1.5", "\"512\"", "true"})
    EXPECT_THAT(error_for(std::string(R"({"model_max_length": )") + length + "}"),
                HasSubstr(path_ + ": model_max_length: "));
}

TEST_F(TokenizerFolder, MustAgreeWithTokenizerJson) {
  const WordPieceOptions cased{.lower_case = false, .strip_accents = true, .split_cjk = false};
  const WordPieceOptions options = read_text(R"({"tokenizer_class": "TokenizersBackend"})", &cased).options;
  EXPECT_FALSE(options.lower_case || options.split_cjk);
  EXPECT_EQ(options.strip_accents, true);
  EXPECT_EQ(read_text(R"({"do_lower_case": false, "strip_accents": true})", &cased).options.strip_accents, true);
  EXPECT_THAT(error_for(R"({"do_lower_case": true})", &cased),
              HasSubstr(path_ + ": do_lower_case: is true, but lowercase of the tokenizer.json is false"));
  EXPECT_THAT(error_for(R"({"strip_accents": false})", &cased), HasSubstr("strip_accents: is false"));
  EXPECT_THAT(error_for(R"({"tokenize_chinese_chars": true})", &cased), HasSubstr("handle_chinese_chars"));
  EXPECT_THAT(error_for(R"({"tokenizer_class": "TokenizersBackend"})"), HasSubstr("is not a BERT tokenizer"));
}

TEST_F(TokenizerFolder, RefusesOtherTokenizersAndMalformedFiles) {
  EXPECT_THAT(error_for(R"({"do_lower_case": 1})"),
              AllOf(HasSubstr(path_ + ": do_lower_case: "), HasSubstr("found 1")));
  EXPECT_THAT(error_for(R"({"strip_accents": "no"})"), HasSubstr("strip_accents: expected true or false"));
  EXPECT_THAT(error_for(R"({"do_basic_tokenize": false})"), HasSubstr("do_basic_tokenize: is false"));
  EXPECT_THAT(error_for(R"({"tokenizer_class": "RobertaTokenizer"})"),
              HasSubstr("\"RobertaTokenizer\" is not a BERT tokenizer"));
  EXPECT_THAT(error_for("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of([&] { read_tokenizer_config(folder_ / "none"); }), HasSubstr("none: no such file"));
  EXPECT_THAT(error_of([&] { write_tokenizer_config(folder_ / "x", {.options = {.max_word = 7}}); }),
              HasSubstr("max_word 7"));
  EXPECT_THAT(error_of([&] { write_tokenizer_config(folder_ / "none/x", {}); }),
              HasSubstr("none/x: cannot be written"));
}

}  // namespace tokenizer_config_test
}  // namespace godwit::data
