// The tokenizer of a run, and of the folders HuggingFace reads.
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
  std::string vocabulary;  // file it was read from; empty: it was trained
};

// The folder of the initial weights, or the one their file lies in; "" when there are none.
std::string weights_folder(const TextConfig& config);

// data.vocab, or the weights' vocab.txt or tokenizer.json, which must agree, or a vocabulary trained on the texts that
// `texts` reads. Letter case and accents as tokenizer.json and the weights' tokenizer_config.json say, but for
// data.letter_case.
TextTokenizer load_tokenizer(const TextConfig& config, const data::TextReader& texts);

// vocab.txt and tokenizer_config.json, each whole or not at all.
void save_tokenizer(const std::string& folder, const TextTokenizer& tokenizer);

}  // namespace godwit::apps
