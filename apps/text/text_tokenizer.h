// The tokenizer of a run and of saved HuggingFace folders.
#pragma once
#include <string>

#include "apps/text/text_config.h"
#include "data/text/tokenizer_config.h"
#include "data/text/train_wordpiece.h"
#include "data/text/wordpiece.h"

namespace godwit::apps {

struct TextTokenizer {
  data::WordPiece pieces;
  data::TokenizerConfig config;
  std::string vocabulary;  // source file; empty if the vocabulary was trained
};

// The folder of the initial weights, or the folder that contains the weights file. "" without initial weights.
std::string weights_folder(const TextConfig& config);

// The vocabulary comes from data.vocab, from the vocab.txt or tokenizer.json of the initial weights (which must agree),
// or from training on `texts`. data.letter_case overrides the letter case in tokenizer.json and tokenizer_config.json.
// Accents follow the letter case unless a file sets strip_accents.
TextTokenizer load_tokenizer(const TextConfig& config, const data::TextReader& texts);

// Returns a notice if data.vocab differs from the vocabulary of the initial weights, otherwise "".
std::string tokenizer_notice(const TextConfig& config, const TextTokenizer& tokenizer);

// Writes vocab.txt and tokenizer_config.json. Each file is written atomically.
void save_tokenizer(const std::string& folder, const TextTokenizer& tokenizer);

}  // namespace godwit::apps
