// Reads and writes the files of a byte-level BPE: vocab.json with merges.txt, and HuggingFace's tokenizer.json.
#pragma once
#include <string>

#include "data/text/byte_bpe.h"

namespace godwit::data {

inline constexpr const char* kTokenizerJson = "tokenizer.json";  // HuggingFace's name

// vocab.json maps tokens to ids 0 to n-1; a line of merges.txt has two tokens. The pattern is that of GPT-2, and
// <|endoftext|> is an added token if it is in the vocabulary. Errors name file and line.
ByteBpe read_bpe(const std::string& vocab, const std::string& merges);

// Throws an Error naming file, field and value if a field is malformed or if the tokenizer differs from ByteBpe:
// another model (WordPiece, Unigram, SentencePiece's BPE with byte_fallback), an unknown pre-tokenizer or normalizer,
// dropout. Ignores decoder, truncation and padding, and the tokens that a post-processor adds around a text.
ByteBpe read_bpe_json(const std::string& path);

// Writes the files atomically; HuggingFace's library reads them. Throws an Error naming the file.
void write_bpe(const std::string& vocab, const std::string& merges, const ByteBpeModel& model);
// Writes everything that read_bpe_json() reads; otherwise as write_bpe().
void write_bpe_json(const std::string& path, const ByteBpeModel& model);

}  // namespace godwit::data
