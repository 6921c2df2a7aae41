#include "data/text/token_data.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "data/text/char_tokenizer.h"
#include "data/text/documents.h"
#include "data/text/token_shard.h"
#include "engine/check.h"

namespace godwit::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShard = ".bin";

bool has_shards(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path.ends_with(kShard);
  for (const auto& entry : fs::directory_iterator(path, error))
    if (entry.path().extension() == kShard) return true;
  return false;
}

std::string folder_of(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

bool is_validation(const std::string& file) {
  return fs::path(file).filename().string().find("val") != std::string::npos;
}

std::shared_ptr<const Tokenizer> shard_tokenizer(const TokenDataOptions& options) {
  if (!options.tokenizer.empty()) return load_tokenizer(options.tokenizer);
  const std::string folder = folder_of(options.path);
  return has_tokenizer(folder) ? load_tokenizer(folder) : nullptr;
}

// Appends the shard to `to`.
void add_shard(const std::string& file, const Tokenizer* tokenizer, uint64_t* fingerprint, TokenStream* to) {
  const Shard shard = open_shard(file);
  if (shard.fingerprint != 0) {
    check(tokenizer == nullptr || tokenizer->fingerprint() == shard.fingerprint, file,
          ": was made with another tokenizer, of ", shard.vocabulary, " tokens, than the ",
          tokenizer ? tokenizer->name() : "", "; use the tokenizer with which the shards were made");
    check(*fingerprint == 0 || *fingerprint == shard.fingerprint, file,
          ": was made with another tokenizer than the shards before it");
    *fingerprint = shard.fingerprint;
  }
  to->append(shard.tokens);
}

TokenData load_shards(const TokenDataOptions& options) {
  TokenData data{.tokenizer = shard_tokenizer(options), .train = {}, .valid = {}};
  uint64_t fingerprint = 0;
  const auto add = [&](const std::string& file, TokenStream* to) {
    add_shard(file, data.tokenizer.get(), &fingerprint, to);
  };
  const std::vector<std::string> files = files_below(options.path, {kShard});
  const bool split = options.valid.empty() && files.size() > 1;
  for (const std::string& file : files)
    if (!split || !is_validation(file)) add(file, &data.train);
  if (split)
    for (const std::string& file : files)
      if (is_validation(file)) add(file, &data.valid);
  if (!options.valid.empty())
    for (const std::string& file : files_below(options.valid, {kShard})) {
      check(has_shards(file), file, ": is no shard (", kShard, "), as the training data is");
      add(file, &data.valid);
    }
  return data;
}

// The documents of all files, one after the other.
std::vector<std::string> read_documents(const std::string& path) {
  std::vector<std::string> documents;
  for (const std::string& file : files_below(path, text_endings()))
    each_document(file, [&](std::string_view text) { documents.emplace_back(text); });
  check(!documents.empty(), path, ": holds no text");
  return documents;
}

std::shared_ptr<const Tokenizer> text_tokenizer(const std::string& name, const std::vector<std::string>& train,
                                                const std::vector<std::string>& valid) {
  if (!name.empty() && name != kCharacters) return load_tokenizer(name);
  CharacterSet characters;
  for (const auto* documents : {&train, &valid}) {
    if (documents->size() > 1) characters.add("\n");
    for (const std::string& text : *documents) characters.add(text);
  }
  return std::make_shared<CharTokenizer>(characters.sorted());
}

TokenStream encode_documents(const std::vector<std::string>& documents, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string& text : documents) {
    if (&text != &documents.front()) append_separator(tokenizer, ids);
    tokenizer.encode(text, ids);
  }
  return TokenStream(ids);
}

TokenData load_texts(const TokenDataOptions& options) {
  const std::vector<std::string> train = read_documents(options.path);
  std::vector<std::string> valid;
  if (!options.valid.empty()) {
    check(!has_shards(options.valid), options.valid, ": is a shard, but the training data is text");
    valid = read_documents(options.valid);
  }
  TokenData data{.tokenizer = text_tokenizer(options.tokenizer, train, valid), .train = {}, .valid = {}};
  data.train = encode_documents(train, *data.tokenizer);
  if (!valid.empty()) data.valid = encode_documents(valid, *data.tokenizer);
  return data;
}

}  // namespace

void append_separator(const Tokenizer& tokenizer, std::vector<int32_t>& ids) {
  if (const auto end = tokenizer.end_of_text()) ids.push_back(*end);
  else tokenizer.encode("\n", ids);
}

TokenData load_token_data(const TokenDataOptions& options) {
  check(options.valid_fraction > 0 && options.valid_fraction < 1, "data: the validation fraction is ",
        options.valid_fraction, ", expected a number between 0 and 1");
  TokenData data = has_shards(options.path) ? load_shards(options) : load_texts(options);
  if (data.valid.size() == 0) {
    const auto all = static_cast<double>(data.train.size());
    const auto kept = static_cast<int64_t>(all * (1 - options.valid_fraction));
    data.valid = data.train.range(kept, data.train.size());
    data.train = data.train.range(0, kept);
  }
  check(data.train.size() > 0 && data.valid.size() > 0, options.path, ": has ", data.train.size(),
        " tokens for training and ", data.valid.size(), " for validation, expected some of both");
  if (data.tokenizer)
    for (TokenStream* stream : {&data.train, &data.valid}) stream->limit(data.tokenizer->size());
  return data;
}

}  // namespace godwit::data
