#include "data/tokenizer_config.h"

#include "data/file.h"
#include "data/json_file.h"
#include "engine/check.h"
#include "engine/excerpt.h"

namespace godwit::data {

WordPieceOptions read_tokenizer_config(const std::string& path) {
  const JsonFile file(path, "a tokenizer_config.json");
  WordPieceOptions options;
  file.root().each_member([&](const std::string& name, const JsonNode& value) {
    if (name == "do_lower_case") options.lower_case = value.boolean();
    else if (name == "strip_accents" && !value.is_null()) options.strip_accents = value.boolean();
    else if (name == "tokenize_chinese_chars") options.split_cjk = value.boolean();
    else if (name == "do_basic_tokenize")
      check(value.boolean(), value.where(), "is false, but text is always split into words before WordPiece");
    else if (name == "tokenizer_class" && !value.is_null())
      check(value.text() == "BertTokenizer" || value.text() == "BertTokenizerFast", value.where(), "\"",
            excerpt(value.text()), "\" is another tokenizer than BERT's (BertTokenizer, BertTokenizerFast)");
  });
  return options;
}

void write_tokenizer_config(const std::string& path, const WordPieceOptions& options) {
  check(options.max_word == 100, path, ": max_word ", options.max_word,
        " cannot be written: HuggingFace's BERT tokenizer knows 100 only");
  const auto name = [](bool value) { return value ? "true" : "false"; };
  write_file(path, detail::concat("{\n  \"do_lower_case\": ", name(options.lower_case), ",\n  \"strip_accents\": ",
                                  options.strip_accents ? name(*options.strip_accents) : "null",
                                  ",\n  \"tokenize_chinese_chars\": ", name(options.split_cjk),
                                  ",\n  \"tokenizer_class\": \"BertTokenizer\"\n}\n"));
}

}  // namespace godwit::data
