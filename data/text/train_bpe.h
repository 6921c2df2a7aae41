// Trains a byte-level BPE. HuggingFace's BpeTrainer with the alphabet of all bytes and the same min_frequency gives the
// same vocabulary and merges.
#pragma once
#include "data/text/byte_bpe.h"
#include "data/text/word_counts.h"

namespace godwit::data {

// Size and limits of the vocabulary.
struct BpeTraining {
  int64_t size = 8192;        // number of tokens, with <|endoftext|> and 256 bytes; fewer if no pair is frequent enough
  int64_t min_frequency = 2;  // minimum frequency of a merged pair
  WordPatternKind pattern = WordPatternKind::gpt2;  // pattern that splits text into words
};

// The order of ids is: <|endoftext|>, the bytes ordered by their characters, the merges. The result depends neither on
// the number of threads nor on the order of the texts. Throws if `size` is below 257.
ByteBpe train_bpe(const TextReader& next, const BpeTraining& training = {});

}  // namespace godwit::data
