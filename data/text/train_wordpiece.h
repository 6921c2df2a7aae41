// Trains a WordPiece vocabulary by merging frequent pairs of pieces (Sennrich et al., Neural machine translation of
// rare words with subword units, 2016). Pieces inside words begin with ##. HuggingFace's trainer gives the
// same vocabulary.
#pragma once
#include <string>
#include <vector>

#include "data/text/vocabulary.h"
#include "data/text/word_counts.h"
#include "data/text/wordpiece.h"

namespace godwit::data {

// Size and limits of the vocabulary.
struct WordPieceTraining {
  int64_t size = 30'000;      // number of tokens, including the five special ones; fewer if no pair is frequent enough
  int64_t min_frequency = 2;  // minimum frequency of a merged pair
  // Maximum number of characters. The most frequent ones are kept; other characters are dropped from words.
  int64_t alphabet = 1000;
  WordPieceOptions words = {};  // options of the tokenizer; words longer than max_word are ignored
};

// Counts words on context().threads threads. The result depends neither on the number of threads nor on the order of
// the texts. Among equally frequent pairs, the pair whose pieces entered the vocabulary first is merged. The order of
// tokens is: special tokens, characters by code point, characters with ##, merges. Throws if `size` is too small for
// all characters.
Vocabulary train_wordpiece(const TextReader& next, const WordPieceTraining& training = {});
Vocabulary train_wordpiece(const std::vector<std::string>& texts, const WordPieceTraining& training = {});

}  // namespace godwit::data
