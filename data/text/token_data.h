// The tokens for a run of a language model, from text or from shards.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/invalid_utf8.h"
#include "data/text/token_stream.h"
#include "data/text/tokenizer.h"

namespace godwit::data {

inline constexpr const char* kCharacters = "characters";  // value of `tokenizer` for the character tokenizer of a text

// The source of the tokens.
struct TokenDataOptions {
  // Text file, JSONL file (.jsonl, one `text` field per line), shard (.bin), or folder of text files or of shards. The
  // files of a folder are read in the order of their paths. In a folder of several shards, files whose names contain
  // "val" are never used for training, and files with the word "test" only if there are no others.
  std::string path = "";
  std::string valid = "";        // like `path`, for validation; never used for training; "": a part of `path`
  std::string tokenizer = "";    // "characters", or a path for load_tokenizer(); "": see load_token_data()
  bool needs_tokenizer = false;  // whether text without `tokenizer` is an error
  double valid_fraction = 0.1;   // fraction at the end of `path` for validation, unless other tokens are for validation
};

// Tokens of one run.
struct TokenData {
  std::shared_ptr<const Tokenizer> tokenizer;  // null for shards whose tokenizer is unknown
  TokenStream train, valid;                    // limited to the vocabulary of the tokenizer or of the shards
  InvalidUtf8 invalid = {};                    // invalid UTF-8 of a text with the character tokenizer
  // Number of bytes by which the tokens of `valid` after the first are longer than their text. U+FFFD has three bytes;
  // the invalid sequence that it replaces has one to three.
  int64_t added_bytes = 0;
  std::vector<std::string> of_test = {};  // omitted test files of a folder
};

// Without `options.valid`, a folder of texts is divided by text_parts(): `valid` is for validation, `test` is omitted.
//
// Documents of JSONL files and files of a folder are separated by the end-of-text token, or by a line feed if the
// tokenizer has none. Without `options.tokenizer`, shards use the tokenizer in their folder if there is one, and text
// uses characters. Throws an Error that names the file if a file is missing, malformed or empty, if a shard's header
// contains another tokenizer or vocabulary size, or if a folder has both text files and shards.
TokenData load_token_data(const TokenDataOptions& options);

// Appends the ids of a document of `file`. Errors name the file.
void encode_document(const Tokenizer& tokenizer, const std::string& file, std::string_view text,
                     std::vector<int32_t>& ids);

// Appends the separator between two documents. Throws if the tokenizer has neither an end-of-text token nor a line
// feed.
void append_separator(const Tokenizer& tokenizer, std::vector<int32_t>& ids);

}  // namespace godwit::data
