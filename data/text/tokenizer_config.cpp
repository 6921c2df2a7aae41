#include "data/text/tokenizer_config.h"

#include <cmath>
#include <iomanip>
#include <sstream>

#include "data/json_file.h"
#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/text_file.h"

namespace godwit::data {
namespace {

const char* name_of(bool value) { return value ? "true" : "false"; }

void check_class(const JsonNode& node, bool with_tokenizer_json) {
  const std::string& name = node.text();
  if (name == "BertTokenizer" || name == "BertTokenizerFast") return;
  // tokenizer.json defines these generic classes.
  if (with_tokenizer_json && (name == "PreTrainedTokenizerFast" || name == "TokenizersBackend")) return;
  fail(node.where(), "\"", excerpt(name), "\" is not a BERT tokenizer; expected BertTokenizer or BertTokenizerFast");
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::string& path, const WordPieceOptions* beside,
                                      std::optional<bool> lower_case) {
  const JsonFile file(path, "a tokenizer_config.json");
  const JsonNode root = file.root();
  TokenizerConfig config;
  WordPieceOptions& options = config.options;
  if (beside) options = *beside;
  // Reads a boolean field, which has another name in tokenizer.json.
  const auto read = [&](const char* name, const char* other, bool now) {
    const std::optional<JsonNode> node = root.find(name);
    if (!node) return now;
    const bool value = node->boolean();
    check(!beside || value == now, node->where(), "is ", name_of(value), ", but ", other, " of the tokenizer.json is ",
          name_of(now), "; correct one of the files");
    return value;
  };
  const bool lower_beside = options.lower_case;  // without a value, accents are stripped if letters become lower case
  options.lower_case = lower_case ? *lower_case : read("do_lower_case", "lowercase", options.lower_case);
  options.split_cjk = read("tokenize_chinese_chars", "handle_chinese_chars", options.split_cjk);
  if (root.find("strip_accents"))
    options.strip_accents = read("strip_accents", "strip_accents", options.strip_accents.value_or(lower_beside));
  if (const auto node = root.find("do_basic_tokenize"))
    check(node->boolean(), node->where(), "is false, but text is always split into words before WordPiece");
  if (const auto node = root.find("tokenizer_class")) check_class(*node, beside != nullptr);
  if (const auto node = root.find("model_max_length")) {
    config.model_max_length = node->number();
    check(*config.model_max_length >= 1 && std::floor(*config.model_max_length) == *config.model_max_length,
          node->where(), "is ", *config.model_max_length, ", expected a whole number of at least 1");
  }
  return config;
}

void write_tokenizer_config(const std::string& path, const TokenizerConfig& config) {
  const WordPieceOptions& options = config.options;
  check(options.max_word == 100, path, ": max_word ", options.max_word,
        " cannot be written: HuggingFace's BERT tokenizer supports only 100");
  std::ostringstream text;
  text.imbue(std::locale::classic());  // the global locale of a program may separate thousands
  text << "{\n  \"do_lower_case\": " << name_of(options.lower_case);
  if (config.model_max_length)
    text << ",\n  \"model_max_length\": " << std::fixed << std::setprecision(0) << *config.model_max_length;
  text << ",\n  \"strip_accents\": " << (options.strip_accents ? name_of(*options.strip_accents) : "null")
       << ",\n  \"tokenize_chinese_chars\": " << name_of(options.split_cjk)
       << ",\n  \"tokenizer_class\": \"BertTokenizer\"\n}\n";
  write_text_file(path, text.str());
}

}  // namespace godwit::data
