#include "apps/text/text_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "apps/text/notices.h"
#include "data/json_file.h"
#include "data/text/tokenizer_json.h"
#include "engine/check.h"
#include "engine/excerpt.h"

namespace godwit::apps {
namespace {

namespace fs = std::filesystem;

std::string beside_weights(const TextConfig& config, const char* name) {
  const std::string folder = weights_folder(config);
  if (folder.empty()) return "";
  const std::string path = (fs::path(folder) / name).string();
  std::error_code ignored;
  return fs::exists(path, ignored) ? path : "";
}

void check_equal(const std::string& file, const data::Vocabulary& vocabulary, const std::string& other_file,
                 const data::Vocabulary& other) {
  const std::vector<std::string>&a = vocabulary.tokens(), &b = other.tokens();
  const auto remedy = "; remove the wrong file, or select the right one with --vocab FILE";
  check(a.size() == b.size(), file, ": has ", a.size(), " tokens, but ", other_file, " has ", b.size(), remedy);
  for (size_t id = 0; id < a.size(); ++id)
    check(a[id] == b[id], file, ": token ", id, " is \"", excerpt(a[id]), "\", but in ", other_file,
          " it is \"", excerpt(b[id]), '"', remedy);
}

// Throws if the file of the initial weights adds tokens, which HuggingFace's tokenizer matches verbatim in the text.
void check_added_tokens(const std::string& path, const data::Vocabulary& vocabulary) {
  const int32_t known[] = {vocabulary.pad(), vocabulary.unk(), vocabulary.cls(), vocabulary.sep(), vocabulary.mask()};
  const data::JsonFile file(path, "an added_tokens.json");
  file.root().each_member([&](const std::string& token, const data::JsonNode&) {
    check(std::ranges::any_of(known, [&](int32_t id) { return vocabulary.token(id) == token; }), path, ": \"",
          excerpt(token), "\" is an added token, expected only [PAD] [UNK] [CLS] [SEP] [MASK]");
  });
}

}  // namespace

std::string weights_folder(const TextConfig& config) {
  if (config.init_weights.empty()) return "";
  std::error_code ignored;
  const fs::path path = config.init_weights;
  if (fs::is_directory(path, ignored)) return path.string();
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

TextTokenizer load_tokenizer(const TextConfig& config, const data::TextReader& texts) {
  const std::string& given = config.data.vocab;  // replaces both files of the initial weights
  const bool is_json = given.ends_with(".json");
  const std::string list = given.empty() ? beside_weights(config, "vocab.txt") : is_json ? "" : given;
  const std::string json = given.empty() ? beside_weights(config, "tokenizer.json") : is_json ? given : "";
  check(!list.empty() || !json.empty() || config.init_weights.empty(), config.init_weights,
        ": has no vocab.txt or tokenizer.json, but the weights require their vocabulary; use ",
        "--vocab FILE");
  std::optional<data::TokenizerJson> file;
  std::optional<data::Vocabulary> words;
  if (!json.empty()) file = data::read_tokenizer_json(json);
  if (!list.empty()) words = data::read_vocabulary(list);
  if (file && words) check_equal(list, *words, json, file->vocabulary);
  if (const std::string added = beside_weights(config, "added_tokens.json"); given.empty() && !file && !added.empty())
    check_added_tokens(added, *words);

  std::optional<bool> lower_case;
  if (config.data.letter_case != "auto") lower_case = config.data.letter_case == "lower";
  data::TokenizerConfig tokenizer;
  if (file) tokenizer.options = file->options;
  if (const std::string path = beside_weights(config, "tokenizer_config.json"); !path.empty())
    tokenizer = data::read_tokenizer_config(path, file ? &file->options : nullptr, lower_case);
  data::WordPieceOptions& options = tokenizer.options;
  if (lower_case) options.lower_case = *lower_case;
  if (!words && file) words = std::move(file->vocabulary);
  if (words) return {data::WordPiece(std::move(*words), options), tokenizer, list.empty() ? json : list};
  const data::WordPieceTraining training{
      .size = config.data.vocab_size, .alphabet = config.data.alphabet, .words = options};
  return {data::WordPiece(data::train_wordpiece(texts, training), options), tokenizer, ""};
}

std::string tokenizer_notice(const TextConfig& config, const TextTokenizer& tokenizer) {
  TextConfig own = config;
  own.data.vocab.clear();
  if (config.data.vocab.empty() ||
      (beside_weights(config, "vocab.txt").empty() && beside_weights(config, "tokenizer.json").empty()))
    return "";
  try {
    if (load_tokenizer(own, {}).pieces.vocabulary().tokens() == tokenizer.pieces.vocabulary().tokens()) return "";
  } catch (const Error&) {  // a vocabulary that is not supported cannot be compared
    return "";
  }
  return other_tokenizer_notice(config.init_weights, config.data.vocab);
}

void save_tokenizer(const std::string& folder, const TextTokenizer& tokenizer) {
  data::write_vocabulary((fs::path(folder) / "vocab.txt").string(), tokenizer.pieces.vocabulary());
  data::write_tokenizer_config((fs::path(folder) / "tokenizer_config.json").string(), tokenizer.config);
}

}  // namespace godwit::apps
