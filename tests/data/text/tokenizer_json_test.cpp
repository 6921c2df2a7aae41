#include "data/text/tokenizer_json.h"

#include <gmock/gmock.h>

#include "data/text/tokenizer_config.h"
#include "tests/data/golden.h"

namespace godwit::data {
namespace tokenizer_json_test {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// A folder saved by transformers (see make_tokenizer_json_golden.py).
const std::string kFolder = golden_path("bert_tokenizer");

class TokenizerJsonFile : public testing::Test {
 protected:
  TokenizerJson read_json(const json& content) {
    const std::string text = content.dump();
    write(path_, Bytes(text.begin(), text.end()));
    return read_tokenizer_json(path_);
  }
  // The error message for the golden file with another value at the given JSON pointer ("/model/type").
  std::string error_with(const std::string& place, const json& value) {
    json changed = golden_;
    changed[json::json_pointer(place)] = value;
    const std::string error = error_of([&] { read_json(changed); });
    EXPECT_THAT(error, HasSubstr(path_ + ": "));
    return error;
  }
  std::string error_of_vocab(const json& vocab) { return error_with("/model/vocab", vocab); }

  TempFolder folder_;
  const std::string path_ = folder_ / "tokenizer.json";
  const json golden_ = json::parse(std::ifstream(kFolder + "/tokenizer.json"));
};

TEST_F(TokenizerJsonFile, TokenizesLikeTransformers) {
  TokenizerJson tokenizer = read_tokenizer_json(kFolder + "/tokenizer.json");
  EXPECT_FALSE(tokenizer.options.lower_case || tokenizer.options.split_cjk);
  EXPECT_EQ(tokenizer.options.strip_accents, std::nullopt);
  EXPECT_EQ(tokenizer.vocabulary.size(), 20);
  EXPECT_EQ(tokenizer.vocabulary.id("##able"), 9);
  const TokenizerConfig config = read_tokenizer_config(kFolder + "/tokenizer_config.json", &tokenizer.options);
  const WordPiece pieces(std::move(tokenizer.vocabulary), config.options);
  const json texts = json::parse(std::ifstream(kFolder + "/ids.json"));
  EXPECT_EQ(texts.size(), 8u);
  for (const json& text : texts) {
    std::vector<int32_t> ids;
    for (const Token& token : pieces.encode(text[0].get<std::string>())) ids.push_back(token.id);
    EXPECT_EQ(ids, text[1].get<std::vector<int32_t>>()) << text[0];
  }
}

// Covers fields that other versions omit or write differently, and fields that the caller sets.
TEST_F(TokenizerJsonFile, ReadsFilesOfOtherVersions) {
  json other = golden_;
  other["model"].erase("type");
  other["post_processor"] = {{"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 2}}};
  other["truncation"] = {{"max_length", 128}};
  other["padding"] = {{"strategy", {{"Fixed", 128}}}};
  other["normalizer"]["strip_accents"] = true;
  EXPECT_EQ(read_json(other).options.strip_accents, true);
  for (const char* field : {"post_processor", "added_tokens", "truncation", "padding", "decoder"}) other.erase(field);
  EXPECT_EQ(read_json(other).vocabulary.tokens(), read_json(golden_).vocabulary.tokens());
  other = golden_;
  other["model"]["vocab"].erase("[MASK]");  // then listed only as an added token
  EXPECT_EQ(read_json(other).vocabulary.mask(), 4);
}

TEST_F(TokenizerJsonFile, RefusesSettingsThatChangeTheTokens) {
  const auto is = [](const std::string& place, const std::string& found, const std::string& expected) {
    return AllOf(HasSubstr(place + ": is " + found), HasSubstr("expected " + expected));
  };
  EXPECT_THAT(error_with("/model/type", "BPE"), is("model.type", "\"BPE\"", "\"WordPiece\""));
  EXPECT_THAT(error_with("/model/unk_token", "<unk>"), is("model.unk_token", "\"<unk>\"", "\"[UNK]\""));
  EXPECT_THAT(error_with("/model/continuing_subword_prefix", "@@"),
              is("model.continuing_subword_prefix", "\"@@\"", "\"##\""));
  EXPECT_THAT(error_with("/model/max_input_chars_per_word", 50), is("model.max_input_chars_per_word", "50", "100"));
  EXPECT_THAT(error_with("/normalizer", {{"type", "Sequence"}, {"normalizers", json::array()}}),
              is("normalizer.type", "\"Sequence\"", "\"BertNormalizer\""));
  EXPECT_THAT(error_with("/normalizer", nullptr), HasSubstr("normalizer: expected an object, found null"));
  EXPECT_THAT(error_with("/normalizer/clean_text", false), is("normalizer.clean_text", "false", "true"));
  EXPECT_THAT(error_with("/normalizer/lowercase", 1), HasSubstr("normalizer.lowercase: expected true or false"));
  EXPECT_THAT(error_with("/pre_tokenizer/type", "Whitespace"),
              is("pre_tokenizer.type", "\"Whitespace\"", "\"BertPreTokenizer\""));
  EXPECT_THAT(error_with("/post_processor/type", "ByteLevel"), HasSubstr("post_processor.type: is \"ByteLevel\""));
  EXPECT_THAT(error_with("/post_processor/single/0/SpecialToken/id", "[SEP]"),
              is("post_processor.single", "\"[SEP]:0 $A:0 [SEP]:0\"", "\"[CLS]:0 $A:0 [SEP]:0\""));
  EXPECT_THAT(error_with("/post_processor/pair/3/Sequence/type_id", 0), HasSubstr("post_processor.pair: is "));
  EXPECT_THAT(error_with("/post_processor/special_tokens/[CLS]/ids/0", 3),
              HasSubstr("post_processor.special_tokens.[CLS].ids[0]: is 3, but [CLS] of model.vocab is 2"));
  EXPECT_THAT(error_with("/post_processor/special_tokens/[CLS]/ids", {2, 2}), HasSubstr("[CLS].ids: holds 2 ids"));
  EXPECT_THAT(error_with("/added_tokens/4/content", "<url>"), HasSubstr("added_tokens[4].content: \"<url>\""));
  EXPECT_THAT(error_with("/added_tokens/4/id", 5),
              HasSubstr("added_tokens[4].id: is 5, but [MASK] of model.vocab is 4"));
  EXPECT_THAT(error_with("/added_tokens/4/normalized", true), is("added_tokens[4].normalized", "true", "false"));
  EXPECT_THAT(error_with("/added_tokens/4/single_word", true), is("added_tokens[4].single_word", "true", "false"));
}

TEST_F(TokenizerJsonFile, IdsMustBeAPermutation) {
  const json vocab = golden_["model"]["vocab"];
  const auto with = [&](const json& id) {
    json changed = vocab;
    changed["good"] = id;
    return error_of_vocab(changed);
  };
  EXPECT_THAT(with(6), HasSubstr("model.vocab: the id 6 belongs to \"bad\" and \"good\""));
  for (const json& id : {json(-1), json(20), json(INT64_MAX), json(INT64_MIN)})
    EXPECT_THAT(with(id), AllOf(HasSubstr("the id of \"good\" is " + id.dump()), HasSubstr("expected 0 to 19")));
  for (const json& id : {json("5"), json(5.0), json(nullptr), json(true), json(UINT64_MAX), json::array()})
    EXPECT_THAT(with(id), HasSubstr("model.vocab.good: expected an integer"));
  json changed = vocab;
  changed.erase("good");
  EXPECT_THAT(error_of_vocab(changed), HasSubstr("is 19, expected 0 to 18")) << "an id is missing";
  changed[""] = 5;
  EXPECT_THAT(error_of_vocab(changed), HasSubstr("contains an empty token"));
  changed.erase("");
  changed["a\nb"] = 5;
  EXPECT_THAT(error_of_vocab(changed), HasSubstr("line break"));
  EXPECT_THAT(error_of_vocab(json::array()), HasSubstr("model.vocab: expected an object"));
  changed = golden_;
  changed.erase("added_tokens");
  changed["model"]["vocab"] = {{"a", 0}};
  EXPECT_THAT(error_of([&] { read_json(changed); }),
              AllOf(HasSubstr(path_), HasSubstr("none of its 1 tokens is [PAD]")));
}

// With any field missing, the reader returns or throws Error.
TEST_F(TokenizerJsonFile, SurvivesMissingFieldsAndTruncation) {
  const json flat = golden_.flatten();
  for (const auto& [place, value] : flat.items()) {
    json changed = flat;
    changed.erase(place);
    try {
      read_json(changed.unflatten());
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_));
    }
  }
  const std::string text = golden_.dump();
  for (size_t cut = 0; cut < text.size(); ++cut) {
    write(path_, Bytes(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(cut)));
    EXPECT_THAT(error_of([&] { read_tokenizer_json(path_); }), HasSubstr(path_));
  }
}

}  // namespace tokenizer_json_test
}  // namespace godwit::data
