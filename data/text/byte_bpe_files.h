// Reads and writes the files of a byte-level BPE: vocab.json with merges.txt, and HuggingFace's tokenizer.json.
#pragma once
#include <string>

#include "data/text/byte_bpe.h"

namespace godwit::data {

inline constexpr const char* kTokenizerJson = "tokenizer.json";  // HuggingFace's file name
// Why a file with "add_prefix_space": true is refused.
inline constexpr const char* kPrefixSpace =
    "is true, but no space is added before a text; set it to false, which changes the first token of a text";

// Reads vocab.json, which maps tokens to ids 0 to n-1, and merges.txt, whose lines contain two tokens. The pattern is
// GPT-2's. <|endoftext|> is an added token if it is in the vocabulary. Errors name file and line.
ByteBpe read_bpe(const std::string& vocab, const std::string& merges);

// Reads tokenizer.json. Throws an Error that names the file, field and value if a field is malformed, or if the
// tokenizer differs from ByteBpe: another model (WordPiece, Unigram, SentencePiece's BPE with byte_fallback), an
// unknown pre-tokenizer or normalizer, or dropout. Ignores decoder, truncation and padding, and the tokens that a
// post-processor adds around a text.
ByteBpe read_bpe_json(const std::string& path);

// Writes the files atomically. HuggingFace's library can read them. Throws an Error that names the file.
void write_bpe(const std::string& vocab, const std::string& merges, const ByteBpeModel& model);
// Writes tokenizer.json, with everything that read_bpe_json() reads, atomically. Throws an Error that names the file.
void write_bpe_json(const std::string& path, const ByteBpeModel& model);

}  // namespace godwit::data
