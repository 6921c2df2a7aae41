// The tokens of a language model's run, from text or from shards.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/invalid_utf8.h"
#include "data/text/token_stream.h"
#include "data/text/tokenizer.h"

namespace godwit::data {

inline constexpr const char* kCharacters = "characters";  // names the character tokenizer of a text

// Where the tokens come from.
struct TokenDataOptions {
  // Text file, JSONL file (.jsonl, a `text` field per line), shard (.bin), or folder of text files or of shards. A
  // folder's files are read in order of their paths. In a folder of several shards, names that contain "val" are never
  // for training.
  std::string path = "";
  std::string valid = "";        // validation data, as `path`; its files are never for training; "": a part of `path`
  std::string tokenizer = "";    // "characters", or a path for load_tokenizer(); "": see load_token_data()
  bool needs_tokenizer = false;  // text without `tokenizer` is an error
  double valid_fraction = 0.1;   // fraction of the tokens at the end of `path`, unless other tokens are for validation
};

// Tokens of one run.
struct TokenData {
  std::shared_ptr<const Tokenizer> tokenizer;  // null: shards whose tokenizer is unknown
  TokenStream train, valid;                    // limited to the vocabulary of the tokenizer or of the shards
  InvalidUtf8 invalid = {};                    // of a text with the character tokenizer
  // Bytes by which the tokens of `valid` after the first are longer than their text: U+FFFD has three bytes, the
  // invalid sequence for which it stands one to three.
  int64_t added_bytes = 0;
  std::vector<std::string> of_test = {};  // files of a folder of texts that are left out
};

// Without `options.valid`, files of a folder of texts are for validation if their names end with val, valid, validation
// or dev, and left out if their names end with test, as in ptb.valid.txt or test.jsonl.
//
// Documents of JSONL files and files of a folder are separated by the end-of-text token, or by a line feed if the
// tokenizer has none. Without `options.tokenizer`, shards use the tokenizer in their folder, if there is one, and text
// uses characters. Throws an Error naming the file if one is missing, malformed or empty, if a shard's header names
// another tokenizer or size of the vocabulary, or if a folder has both text files and shards.
TokenData load_token_data(const TokenDataOptions& options);

// Appends the ids of a document of `file`. Errors name the file.
void encode_document(const Tokenizer& tokenizer, const std::string& file, std::string_view text,
                     std::vector<int32_t>& ids);

// Appends the separator of two documents. Throws if the tokenizer has neither an end-of-text token nor a line feed.
void append_separator(const Tokenizer& tokenizer, std::vector<int32_t>& ids);

}  // namespace godwit::data
