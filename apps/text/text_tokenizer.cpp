#include "apps/text/text_tokenizer.h"

#include <filesystem>

#include "data/tokenizer_config.h"
#include "engine/check.h"

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

}  // namespace

std::string weights_folder(const TextConfig& config) {
  if (config.init_weights.empty()) return "";
  std::error_code ignored;
  const fs::path path = config.init_weights;
  if (fs::is_directory(path, ignored)) return path.string();
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

TextTokenizer load_tokenizer(const TextConfig& config, const data::TextReader& texts) {
  data::WordPieceOptions options;
  if (const std::string path = beside_weights(config, "tokenizer_config.json"); !path.empty())
    options = data::read_tokenizer_config(path);
  if (config.data.letter_case != "auto") options.lower_case = config.data.letter_case == "lower";
  std::string path = config.data.vocab.empty() ? beside_weights(config, "vocab.txt") : config.data.vocab;
  check(!path.empty() || config.init_weights.empty(), config.init_weights,
        ": has no vocab.txt beside the weights, and words learnt under other ids are lost; give --vocab FILE");
  if (!path.empty()) return {data::WordPiece(data::read_vocabulary(path), options), options, path};
  const data::WordPieceTraining training{
      .size = config.data.vocab_size, .alphabet = config.data.alphabet, .words = options};
  return {data::WordPiece(data::train_wordpiece(texts, training), options), options, ""};
}

void save_tokenizer(const std::string& folder, const TextTokenizer& tokenizer) {
  data::write_vocabulary((fs::path(folder) / "vocab.txt").string(), tokenizer.pieces.vocabulary());
  data::write_tokenizer_config((fs::path(folder) / "tokenizer_config.json").string(), tokenizer.options);
}

}  // namespace godwit::apps
