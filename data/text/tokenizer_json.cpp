#include "data/text/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <utility>

#include "data/json_file.h"
#include "engine/check.h"
#include "engine/excerpt.h"

namespace godwit::data {
namespace {

constexpr std::array<const char*, 5> kSpecialTokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

void check_value(const JsonNode& node, const std::string& expected) {
  check(node.text() == expected, node.where(), "is \"", excerpt(node.text()), "\", expected \"", expected, '"');
}

void check_boolean(const JsonNode& node, bool expected) {
  check(node.boolean() == expected, node.where(), "is ", expected ? "false, expected true" : "true, expected false");
}

using Entries = std::vector<std::pair<std::string, int64_t>>;  // (token, id)

void read_model(const JsonNode& model, Entries* entries) {
  if (const auto type = model.find("type")) check_value(*type, "WordPiece");  // not written by early versions
  check_value(model.member("unk_token"), "[UNK]");
  check_value(model.member("continuing_subword_prefix"), "##");
  const JsonNode longest = model.member("max_input_chars_per_word");
  check(longest.integer() == 100, longest.where(), "is ", longest.integer(),
        ", expected 100, as in HuggingFace's BERT tokenizer");
  const JsonNode vocab = model.member("vocab");
  vocab.each_member([&](const std::string& token, const JsonNode& id) {
    check(!token.empty(), vocab.where(), "contains an empty token");
    check(token.find_first_of("\r\n") == std::string::npos, vocab.where(), "contains a token with a line break");
    entries->emplace_back(token, id.integer());
  });
}

// Added special tokens are matched verbatim in the text. They need not be in the vocabulary.
void read_added_tokens(const JsonNode& list, const JsonNode& vocab, Entries* entries) {
  list.each([&](const JsonNode& added) {
    const JsonNode content = added.member("content"), id = added.member("id");
    const std::string& token = content.text();
    check(std::ranges::find(kSpecialTokens, token) != kSpecialTokens.end(), content.where(), "\"", excerpt(token),
          "\" is an added token, expected only [PAD] [UNK] [CLS] [SEP] [MASK]");
    for (const char* flag : {"single_word", "normalized"})
      if (const auto value = added.find(flag)) check_boolean(*value, false);
    const auto known = vocab.find(token);
    check(!known || known->integer() == id.integer(), id.where(), "is ", id.integer(), ", but ", token,
          " of model.vocab is ", known ? known->integer() : 0);
    if (!known) entries->emplace_back(token, id.integer());
  });
}

Vocabulary vocabulary_of(const JsonNode& root, const std::string& path) {
  Entries entries;
  const JsonNode model = root.member("model");
  read_model(model, &entries);
  if (const auto added = root.find("added_tokens")) read_added_tokens(*added, model.member("vocab"), &entries);
  std::vector<std::string> tokens(entries.size());
  for (auto& [token, id] : entries) {
    check(id >= 0 && id < std::ssize(tokens), path, ": model.vocab: the id of \"", excerpt(token), "\" is ", id,
          ", expected 0 to ", tokens.size() - 1, " for ", tokens.size(), " tokens");
    std::string& place = tokens[static_cast<size_t>(id)];
    check(place.empty(), path, ": model.vocab: the id ", id, " belongs to \"", excerpt(place), "\" and \"",
          excerpt(token), '"');
    place = std::move(token);
  }
  return with_place(path, [&] { return Vocabulary(std::move(tokens)); });
}

WordPieceOptions read_normalizer(const JsonNode& normalizer) {
  check_value(normalizer.member("type"), "BertNormalizer");
  check_boolean(normalizer.member("clean_text"), true);
  WordPieceOptions options;
  options.lower_case = normalizer.member("lowercase").boolean();
  options.split_cjk = normalizer.member("handle_chinese_chars").boolean();
  if (const auto strip = normalizer.find("strip_accents")) options.strip_accents = strip->boolean();
  return options;
}

void check_id(const JsonNode& node, const char* token, const Vocabulary& vocabulary) {
  check(node.integer() == *vocabulary.id(token), node.where(), "is ", node.integer(), ", but ", token,
        " of model.vocab is ", *vocabulary.id(token));
}

// Formats a template such as [CLS] A [SEP] as "[CLS]:0 $A:0 [SEP]:0", each piece with its type, and checks it.
void check_template(const JsonNode& pieces, const std::string& expected) {
  std::string text;
  pieces.each([&](const JsonNode& piece) {
    piece.each_member([&](const std::string& kind, const JsonNode& value) {
      if (!text.empty()) text += ' ';
      if (kind == "Sequence") text += '$';
      text += value.member("id").text() + ':' + std::to_string(value.member("type_id").integer());
    });
  });
  check(text == expected, pieces.where(), "is \"", excerpt(text), "\", expected \"", expected, '"');
}

// Checks the special tokens around a text. HuggingFace's BERT tokenizer adds them even if the field is missing.
void check_post_processor(const JsonNode& node, const Vocabulary& vocabulary) {
  const JsonNode type = node.member("type");
  if (type.text() == "BertProcessing") {
    for (const auto& [name, token] : {std::pair("cls", "[CLS]"), std::pair("sep", "[SEP]")})
      node.member(name).each([&, i = 0, token = token](const JsonNode& part) mutable {
        if (i++ == 0) check_value(part, token);
        else check_id(part, token, vocabulary);
      });
    return;
  }
  check_value(type, "TemplateProcessing");
  check_template(node.member("single"), "[CLS]:0 $A:0 [SEP]:0");
  check_template(node.member("pair"), "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1");
  for (const char* token : {"[CLS]", "[SEP]"}) {
    const JsonNode ids = node.member("special_tokens").member(token).member("ids");
    int64_t count = 0;
    ids.each([&](const JsonNode& id) { check_id(id, token, vocabulary), ++count; });
    check(count == 1, ids.where(), "holds ", count, " ids, expected 1");
  }
}

}  // namespace

TokenizerJson read_tokenizer_json(const std::string& path) {
  const JsonFile file(path, "a tokenizer.json");
  const JsonNode root = file.root();
  TokenizerJson tokenizer{vocabulary_of(root, path), read_normalizer(root.member("normalizer"))};
  check_value(root.member("pre_tokenizer").member("type"), "BertPreTokenizer");
  if (const auto around = root.find("post_processor")) check_post_processor(*around, tokenizer.vocabulary);
  return tokenizer;
}

}  // namespace godwit::data
