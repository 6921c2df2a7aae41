// Training of a WordPiece vocabulary on text: pairs of pieces are merged by frequency (Sennrich et al., Neural machine
// translation of rare words with subword units, 2016), pieces inside words written with ##. As HuggingFace's trainer.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "data/text/vocabulary.h"
#include "data/text/wordpiece.h"

namespace godwit::data {

struct WordPieceTraining {
  int64_t size = 30'000;        // tokens, the five special ones among them; fewer when no pair is frequent enough
  int64_t min_frequency = 2;    // of a pair that is merged
  int64_t alphabet = 1000;      // characters at most, the most frequent ones; words are cut without the others
  WordPieceOptions words = {};  // as the tokenizer will cut text; words longer than max_word teach nothing
};

// Puts the next text in place, or returns false when there is none. It is called by one thread at a time.
using TextReader = std::function<bool(std::string& text)>;

// Words are counted on context().threads threads; no bit depends on their number, nor on the order of the texts. Of
// pairs equally frequent, the one whose pieces came into the vocabulary first is merged. Order of tokens: special,
// characters by code point, the same with ##, merges. Throws when the size has no room for all characters.
Vocabulary train_wordpiece(const TextReader& next, const WordPieceTraining& training = {});
Vocabulary train_wordpiece(const std::vector<std::string>& texts, const WordPieceTraining& training = {});

}  // namespace godwit::data
