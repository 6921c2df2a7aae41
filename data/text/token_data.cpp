#include "data/text/token_data.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "data/text/char_tokenizer.h"
#include "data/text/documents.h"
#include "data/text/token_shard.h"
#include "engine/check.h"
#include "engine/utf8.h"

namespace godwit::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShard = ".bin";

// The files of a text or of a folder, all of one kind.
struct Files {
  std::vector<std::string> paths;
  bool shards = false;
};

Files list_files(const std::string& path) {
  std::vector<std::string> endings = text_endings();
  endings.push_back(kShard);
  Files files{.paths = files_below(path, endings)};
  const auto shards =
      std::ranges::count_if(files.paths, [](const std::string& file) { return has_ending(file, kShard); });
  check(shards == 0 || shards == std::ssize(files.paths), path,
        ": has text files and shards (*.bin); name one kind of file");
  files.shards = shards > 0;
  return files;
}

// Removes the validation files, and links to them, from the training files.
void remove_validation(const std::vector<std::string>& valid, std::vector<std::string>& train) {
  std::set<fs::path> paths;
  std::error_code ignored;
  for (const std::string& file : valid) paths.insert(fs::canonical(file, ignored));
  std::erase_if(train, [&](const std::string& file) { return paths.contains(fs::canonical(file, ignored)); });
}

std::string folder_of(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string lower_name(const std::string& file) {
  std::string name = fs::path(file).filename().string();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

bool is_validation(const std::string& file) { return lower_name(file).find("val") != std::string::npos; }

// Whether a word of the name is "test", as in test_000000.bin.
bool is_test(const std::string& file) {
  const std::string name = lower_name(file);
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find_first_of("._-", at), name.size());
    if (std::string_view(name).substr(at, end - at) == "test") return true;
    at = end + 1;
  }
  return false;
}

std::shared_ptr<const Tokenizer> shard_tokenizer(const TokenDataOptions& options) {
  check(options.tokenizer != kCharacters,
        "data.tokenizer: \"characters\" is for text; shards need the tokenizer with which they were made");
  if (!options.tokenizer.empty()) return load_tokenizer(options.tokenizer);
  const std::string folder = folder_of(options.path);
  return has_tokenizer(folder) ? load_tokenizer(folder) : nullptr;
}

// The fingerprint of the tokenizer next to a shard; 0 if no tokenizer can be read.
uint64_t fingerprint_beside(const std::string& file) {
  const std::string folder = folder_of(file);
  try {
    return has_tokenizer(folder) ? load_tokenizer(folder)->fingerprint() : 0;
  } catch (const Error&) {
    return 0;
  }
}

// Shards of one tokenizer.
struct Shards {
  const Tokenizer* tokenizer;  // may be null
  std::map<std::string, uint64_t> by_folder = {};  // fingerprints of the tokenizers next to shards; 0: unknown
  uint64_t fingerprint = 0;    // of the shards; 0: unknown
  int64_t vocabulary = 0;      // in the shards' headers; 0: unknown

  void append(const std::string& file, TokenStream* to) {
    const Shard shard = open_shard(file);
    if (shard.fingerprint != 0) {
      check(tokenizer == nullptr || tokenizer->fingerprint() == shard.fingerprint, file,
            ": was made with a tokenizer of ", shard.vocabulary,
            " tokens; the tokenizer of this run is another one: ", tokenizer ? tokenizer->name() : "",
            "; use the tokenizer of the shards");
      check(fingerprint == 0 || fingerprint == shard.fingerprint, file,
            ": was made with another tokenizer than the shards before this one");
      fingerprint = shard.fingerprint;
    } else if (tokenizer) {
      const auto [found, added] = by_folder.try_emplace(folder_of(file));
      if (added) found->second = fingerprint_beside(file);
      check(found->second == 0 || found->second == tokenizer->fingerprint(), file,
            ": the folder has another tokenizer than the one of this run: ", tokenizer->name(),
            "; use the tokenizer that made the shards");
    }
    check(tokenizer == nullptr || shard.vocabulary == 0 || shard.vocabulary == tokenizer->size(), file,
          ": its header states a vocabulary of ", shard.vocabulary, " tokens, but the tokenizer has ",
          tokenizer ? tokenizer->size() : 0, "; use the tokenizer of the shards");
    check(tokenizer == nullptr || !shard.plain || tokenizer->size() <= kMostIds16, file,
          ": has no header, so its ids have 16 bits, but the tokenizer has ", tokenizer ? tokenizer->size() : 0,
          " tokens, which need more bits; use shards with headers (tools/tokenize)");
    vocabulary = std::max(vocabulary, shard.vocabulary);
    to->append(shard.tokens);
  }
};

// `valid` may be empty.
TokenData load_shards(const TokenDataOptions& options, std::vector<std::string> train, std::vector<std::string> valid) {
  TokenData data{.tokenizer = shard_tokenizer(options), .train = {}, .valid = {}};
  const auto is_training = [](const std::string& file) { return !is_validation(file); };
  if (std::ranges::any_of(train, [&](const std::string& file) { return is_training(file) && !is_test(file); })) {
    std::erase_if(train, [&](const std::string& file) {
      const bool left_out = is_training(file) && is_test(file);
      if (left_out) data.of_test.push_back(file);
      return left_out;
    });
  }
  if (train.size() > 1) {
    const auto first = std::stable_partition(train.begin(), train.end(), is_training);
    if (options.valid.empty()) valid.assign(first, train.end());
    train.erase(first, train.end());
  }
  remove_validation(valid, train);
  check(!train.empty(), options.path, ": all files are for validation, expected some for training");
  Shards shards{.tokenizer = data.tokenizer.get()};
  if (shards.tokenizer && options.tokenizer.empty())
    shards.by_folder[folder_of(options.path)] = shards.tokenizer->fingerprint();
  for (const std::string& file : train) shards.append(file, &data.train);
  for (const std::string& file : valid) shards.append(file, &data.valid);
  if (shards.vocabulary > 0)
    for (TokenStream* stream : {&data.train, &data.valid}) stream->limit(shards.vocabulary);
  return data;
}

struct FileText {
  std::string file;
  std::vector<std::string> documents;
  size_t begin = 0;  // offset of a single document in the file
};

// The documents of all files.
std::vector<FileText> read_documents(const std::string& path, const std::vector<std::string>& files) {
  std::vector<FileText> texts;
  for (const std::string& file : files) {
    FileText text{.file = file, .documents = {}};
    each_document(file, [&](std::string_view document, size_t begin) {
      text.documents.emplace_back(document);
      text.begin = begin;
    });
    if (!text.documents.empty()) texts.push_back(std::move(text));
  }
  check(!texts.empty(), path, ": holds no text");
  return texts;
}

std::shared_ptr<const Tokenizer> text_tokenizer(const std::string& name, const std::vector<FileText>& train,
                                                const std::vector<FileText>& valid) {
  if (!name.empty() && name != kCharacters) return load_tokenizer(name);
  CharacterSet characters;
  for (const auto* texts : {&train, &valid}) {
    size_t documents = 0;
    for (const FileText& text : *texts)
      for (const std::string& document : text.documents) {
        if (++documents == 2) characters.add("\n");
        characters.add(document);
      }
  }
  return std::make_shared<CharTokenizer>(characters.sorted());
}

// The tokens of all documents in order.
TokenStream encode_documents(const std::vector<FileText>& texts, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const FileText& text : texts)
    for (const std::string& document : text.documents) {
      if (&document != &texts.front().documents.front()) append_separator(tokenizer, ids);
      encode_document(tokenizer, text.file, document, ids);
    }
  return TokenStream(ids);
}

// Number of training tokens; the remaining tokens are for validation.
int64_t training_part(int64_t tokens, double valid_fraction) {
  return static_cast<int64_t>(static_cast<double>(tokens) * (1 - valid_fraction));
}

// Number of bytes that replacing invalid sequences by U+FFFD adds, from character `first` of the joined documents on. A
// document separator counts as one character.
int64_t count_added_bytes(const std::vector<FileText>& texts, int64_t first) {
  int64_t bytes = 0, position = -1;
  for (const FileText& text : texts)
    for (const std::string& document : text.documents) {
      ++position;
      for (size_t at = 0; at < document.size(); ++position) {
        const CodePoint code = decode_utf8(document, at);
        if (!code.valid && position >= first) bytes += 3 - code.bytes;
        at += code.bytes;
      }
    }
  return bytes;
}

// Completes data->invalid and data->added_bytes.
void count_invalid(const std::vector<FileText>& train, const std::vector<FileText>& valid, double valid_fraction,
                   TokenData* data) {
  for (const auto* texts : {&train, &valid})
    for (const FileText& text : *texts)
      for (const std::string& document : text.documents) data->invalid.add(text.file, document, text.begin);
  if (data->invalid.count == 0) return;
  data->added_bytes = valid.empty() ? count_added_bytes(train, training_part(data->train.size(), valid_fraction) + 1)
                                    : count_added_bytes(valid, 1);
}

// `valid` may be empty.
TokenData load_texts(const TokenDataOptions& options, std::vector<std::string> train, std::vector<std::string> valid) {
  std::vector<std::string> of_test;
  if (options.valid.empty()) {
    TextParts parts = text_parts(train, options.path);
    train = std::move(parts.train), valid = std::move(parts.valid), of_test = std::move(parts.test);
  }
  remove_validation(valid, train);
  check(!train.empty(), options.path, ": all files are for validation, expected some for training");
  check(!options.needs_tokenizer || !options.tokenizer.empty(),
        "the tokenizer of the initial weights is not known; name it with --tokenizer PATH");
  const std::vector<FileText> texts = read_documents(options.path, train);
  std::vector<FileText> valid_texts;
  if (!valid.empty()) valid_texts = read_documents(options.valid.empty() ? options.path : options.valid, valid);
  TokenData data{.tokenizer = text_tokenizer(options.tokenizer, texts, valid_texts), .train = {}, .valid = {}};
  data.of_test = of_test;
  data.train = encode_documents(texts, *data.tokenizer);
  if (!valid.empty()) data.valid = encode_documents(valid_texts, *data.tokenizer);
  if (dynamic_cast<const CharTokenizer*>(data.tokenizer.get()))
    count_invalid(texts, valid_texts, options.valid_fraction, &data);
  return data;
}

}  // namespace

void encode_document(const Tokenizer& tokenizer, const std::string& file, std::string_view text,
                     std::vector<int32_t>& ids) {
  with_place(file, [&] { tokenizer.encode(text, ids); });
}

void append_separator(const Tokenizer& tokenizer, std::vector<int32_t>& ids) {
  if (const auto end = tokenizer.end_of_text()) return ids.push_back(*end);
  try {
    tokenizer.encode("\n", ids);
  } catch (const Error&) {
    fail("tokenizer: has neither an end-of-text token nor a line feed, expected one of them to separate documents");
  }
}

TokenData load_token_data(const TokenDataOptions& options) {
  check(options.valid_fraction > 0 && options.valid_fraction < 1, "data: the validation fraction is ",
        options.valid_fraction, ", expected a number between 0 and 1");
  Files train = list_files(options.path), valid;
  if (!options.valid.empty()) {
    valid = list_files(options.valid);
    check(valid.shards || !train.shards, options.valid, ": is not a shard, but the training data is; use *.bin files");
    check(!valid.shards || train.shards, options.valid, ": is a shard, but the training data is text");
  }
  TokenData data = train.shards ? load_shards(options, std::move(train.paths), std::move(valid.paths))
                                : load_texts(options, std::move(train.paths), std::move(valid.paths));
  if (data.valid.size() == 0) {
    const int64_t kept = training_part(data.train.size(), options.valid_fraction);
    data.valid = data.train.range(kept, data.train.size());
    data.train = data.train.range(0, kept);
  }
  check(data.train.size() > 0 && data.valid.size() > 0, options.path, ": has ", data.train.size(),
        " tokens for training and ", data.valid.size(), " for validation, expected some of both");
  if (data.tokenizer)
    for (TokenStream* stream : {&data.train, &data.valid}) stream->limit(data.tokenizer->size());
  // Checked now, because an error during the run would lose its work. Larger data is checked when it is read.
  constexpr int64_t kMostChecked = 1 << 28;
  if (train.shards && data.tokenizer)
    for (const TokenStream* stream : {&data.train, &data.valid})
      if (stream->size() <= kMostChecked) stream->check_ids();
  return data;
}

}  // namespace godwit::data
