// tokenize: converts text files, JSONL files, and folders of such files to shards of tokens for train_gpt.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/build_identity.h"
#include "data/text/char_tokenizer.h"
#include "data/text/documents.h"
#include "data/text/token_data.h"
#include "data/text/token_shard.h"
#include "data/text/train_bpe.h"
#include "engine/check.h"
#include "engine/clock.h"

using namespace godwit;

namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage =
    "usage: tools/tokenize TEXT… --out FOLDER (--tokenizer TOKENIZER | --train-bpe SIZE) [OPTION…]\n"
    "Writes the tokens of texts into shards for train_gpt, nanoGPT and llm.c. Saves the tokenizer in their folder.\n"
    "TEXT: text files, JSONL files (*.jsonl: member \"text\" of each line), folders of *.txt and *.jsonl; also gzip.\n"
    "In a folder, names that end with val, valid, validation or dev are for validation, as in ptb.valid.txt. Names\n"
    "that end with test are not used.\n"
    "\n"
    "  --out FOLDER            new folder for the shards\n"
    "  --tokenizer TOKENIZER   \"characters\", a tokenizer.json, a vocab.json next to its merges.txt, or their folder\n"
    "  --train-bpe SIZE        trains a byte-level BPE of SIZE tokens on the texts\n"
    "  --validation FRACTION   fraction at the end of each file for validation; 0: none. Default: 0.1, or 0 if\n"
    "                          a folder has files for validation\n"
    "  --format FORMAT         header: llm.c's format with the tokenizer's fingerprint (default); plain: nanoGPT's "
    "format\n"
    "  --shard-tokens N        tokens of a shard with a header (100000000)\n"
    "  --version               prints version and hash of the sources, and ends\n"
    "\n"
    "<|endoftext|> separates documents. If the tokenizer has no such token, a line feed separates them. A file with\n"
    "several documents is split between documents, and a file with one document is split within the document.";

struct Arguments {
  std::vector<std::string> texts;
  std::string out, tokenizer;
  int64_t train_bpe = 0, shard_tokens = 0;  // 0: not given
  std::optional<double> validation = {};
  data::ShardFormat format = data::ShardFormat::header;
};

template <class Number>
Number number(const std::string& flag, const std::string& text, Number least, Number below) {
  Number value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && stop == text.data() + text.size() && value >= least && value < below, flag, ": is '",
        text, "', expected a number from ", least, " to below ", below);
  return value;
}

constexpr const char* kFlags[] = {"--out", "--tokenizer", "--train-bpe", "--validation", "--format", "--shard-tokens"};

Arguments parse(const std::vector<std::string>& args) {
  Arguments result;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].starts_with("--")) {
      result.texts.push_back(args[i]);
      continue;
    }
    const size_t equals = args[i].find('=');
    const std::string flag = args[i].substr(0, equals);
    check(std::ranges::find(kFlags, flag) != std::end(kFlags), "unknown option ", flag, " (--help lists the options)");
    check(equals != std::string::npos || i + 1 < args.size(), flag,
          ": is the last argument, expected a value after it (--help lists the options)");
    const std::string value = equals != std::string::npos ? args[i].substr(equals + 1) : args[++i];
    if (flag == "--out") result.out = value;
    else if (flag == "--tokenizer") result.tokenizer = value;
    else if (flag == "--train-bpe") result.train_bpe = number<int64_t>(flag, value, 257, int64_t{1} << 31);
    else if (flag == "--validation") result.validation = number<double>(flag, value, 0, 1);
    else if (flag == "--shard-tokens") result.shard_tokens = number<int64_t>(flag, value, 1, int64_t{1} << 31);
    else if (flag == "--format" && (value == "header" || value == "plain"))
      result.format = value == "plain" ? data::ShardFormat::plain : data::ShardFormat::header;
    else fail("--format: is '", value, "', expected header or plain");
  }
  check(!result.texts.empty(), "TEXT is missing; expected files or folders (--help shows the arguments)");
  while (result.out.size() > 1 && result.out.ends_with('/')) result.out.pop_back();
  check(!result.out.empty(), "--out is missing; expected a new folder for the shards");
  check(result.tokenizer.empty() != (result.train_bpe == 0),
        "expected either --tokenizer TOKENIZER or --train-bpe SIZE");
  check(result.format == data::ShardFormat::header || result.shard_tokens == 0,
        "--shard-tokens applies to --format header only; a plain shard holds all tokens");
  if (result.shard_tokens == 0) result.shard_tokens = 100'000'000;
  return result;
}

// Calls f for each document of all files, in order.
void each_text(const std::vector<std::string>& files, const std::function<void(std::string_view)>& f) {
  for (const std::string& file : files) data::each_document(file, [&](std::string_view text, size_t) { f(text); });
}

std::unique_ptr<data::Tokenizer> train(const std::vector<std::string>& files, int64_t size) {
  size_t file = 0, next = 0;
  std::vector<std::string> documents;
  const auto reader = [&](std::string& text) {
    while (next == documents.size()) {
      if (file == files.size()) return false;
      documents.clear();
      next = 0;
      data::each_document(files[file++], [&](std::string_view document, size_t) { documents.emplace_back(document); });
    }
    text = std::move(documents[next++]);
    return true;
  };
  return std::make_unique<data::ByteBpe>(data::train_bpe(reader, {.size = size}));
}

std::unique_ptr<data::Tokenizer> tokenizer_of(const Arguments& arguments, const data::TextParts& texts) {
  if (arguments.train_bpe > 0) return train(texts.train, arguments.train_bpe);
  if (arguments.tokenizer != data::kCharacters) return data::load_tokenizer(arguments.tokenizer);
  data::CharacterSet characters;
  for (const auto* files : {&texts.train, &texts.valid}) {
    int64_t documents = 0;
    each_text(*files, [&](std::string_view text) {
      if (++documents == 2) characters.add("\n");  // separates documents
      characters.add(text);
    });
  }
  return std::make_unique<data::CharTokenizer>(characters.sorted());
}

// The shards of one part of the text: NAME.bin, or NAME_000000.bin, NAME_000001.bin, …
class Part {
 public:
  // `path`: path of the shards without number and extension.
  Part(const Arguments& arguments, const data::Tokenizer& tokenizer, std::string path)
      : arguments_(arguments), tokenizer_(tokenizer), path_(std::move(path)) {}

  void add(const std::string& file, std::string_view text) {
    ids_.clear();
    if (tokens_ > 0) data::append_separator(tokenizer_, ids_);
    data::encode_document(tokenizer_, file, text, ids_);
    tokens_ += std::ssize(ids_);
    for (std::span<const int32_t> left = ids_; !left.empty();) {
      if (!writer_) writer_.emplace(next_path(), arguments_.format, tokenizer_);
      int64_t room = std::ssize(left);
      if (arguments_.format == data::ShardFormat::header)
        room = std::min(room, arguments_.shard_tokens - writer_->size());
      writer_->add(left.first(static_cast<size_t>(room)));
      left = left.subspan(static_cast<size_t>(room));
      if (arguments_.format == data::ShardFormat::header && writer_->size() == arguments_.shard_tokens) close();
    }
  }

  void close() {
    if (!writer_) return;
    writer_->close();
    writer_.reset();
    ++shards_;
  }

  int64_t tokens() const { return tokens_; }
  int64_t shards() const { return shards_; }

 private:
  std::string next_path() const {
    char number[16] = "";
    if (arguments_.format == data::ShardFormat::header)
      std::snprintf(number, sizeof number, "_%06lld", static_cast<long long>(shards_));
    return path_ + number + ".bin";
  }

  const Arguments& arguments_;
  const data::Tokenizer& tokenizer_;
  std::string path_;
  std::vector<int32_t> ids_;
  std::optional<data::ShardWriter> writer_;
  int64_t tokens_ = 0, shards_ = 0;
};

// The place at which a file with one document is split: a character begins there.
size_t split_at(std::string_view text, double validation) {
  auto at = static_cast<size_t>(static_cast<double>(text.size()) * (1 - validation));
  while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) ++at;
  return at;
}

// Adds the tokens of a file to the parts. Counts invalid sequences in `invalid` if it is not null. Returns the number
// of text bytes.
size_t add_file(const std::string& file, double validation, Part& train, Part& valid, data::InvalidUtf8* invalid) {
  std::vector<std::string> documents;
  size_t bytes = 0;
  data::each_document(file, [&](std::string_view text, size_t begin) {
    documents.emplace_back(text);
    bytes += text.size();
    if (invalid) invalid->add(file, text, begin);
  });
  if (documents.size() == 1) {
    const std::string_view text = documents[0];
    const size_t at = split_at(text, validation);
    if (at > 0) train.add(file, text.substr(0, at));
    if (at < text.size()) valid.add(file, text.substr(at));
    return bytes;
  }
  const double limit = static_cast<double>(bytes) * (1 - validation);
  size_t begin = 0;
  for (const std::string& text : documents) {
    (validation == 0 || static_cast<double>(begin) < limit ? train : valid).add(file, text);
    begin += text.size();
  }
  return bytes;
}

// Writes tokenizer and shards to an existing folder.
void write_shards(const Arguments& arguments, const data::TextParts& texts, const data::Tokenizer& tokenizer,
                  const std::string& folder) {
  const double validation = arguments.validation.value_or(texts.valid.empty() ? 0.1 : 0);
  std::vector<std::string> files = texts.train;
  files.insert(files.end(), texts.valid.begin(), texts.valid.end());
  tokenizer.save(folder);
  Part train(arguments, tokenizer, folder + "/train"), valid(arguments, tokenizer, folder + "/val");
  data::InvalidUtf8 invalid;
  const bool characters = dynamic_cast<const data::CharTokenizer*>(&tokenizer) != nullptr;
  size_t bytes = 0;
  const Clock::time_point start = Clock::now();
  for (size_t i = 0; i < files.size(); ++i) {
    const bool validates = i >= texts.train.size();
    bytes += add_file(files[i], validates ? 1 : validation, train, valid, characters ? &invalid : nullptr);
    std::printf("file %zu of %zu%s: %s; so far %.1f MB, %lld tokens, %.1f MB/s\n", i + 1, files.size(),
                validates ? ", for validation" : "", files[i].c_str(), 1e-6 * static_cast<double>(bytes),
                static_cast<long long>(train.tokens() + valid.tokens()),
                1e-6 * static_cast<double>(bytes) / seconds_since(start));
    std::fflush(stdout);
  }
  train.close();
  valid.close();
  check(train.tokens() > 0, "the files hold no text for training");
  check(valid.tokens() > 0 || validation == 0, "--validation ", validation,
        ": the documents are too few or too long to be split; use a larger fraction, or 0 for none");
  std::printf("%s: %lld tokens for training in %lld shards, %lld for validation in %lld\n", arguments.out.c_str(),
              static_cast<long long>(train.tokens()), static_cast<long long>(train.shards()),
              static_cast<long long>(valid.tokens()), static_cast<long long>(valid.shards()));
  if (const std::string notice = invalid.notice(data::kInvalidAreReplaced); !notice.empty())
    std::printf("notice: %s\n", notice.c_str());
}

void run(const Arguments& arguments) {
  data::TextParts texts;
  for (const std::string& text : arguments.texts) {
    const data::TextParts found = data::text_parts(data::files_below(text, data::text_endings()), text);
    for (const auto part : {&data::TextParts::train, &data::TextParts::valid, &data::TextParts::test})
      (texts.*part).insert((texts.*part).end(), (found.*part).begin(), (found.*part).end());
  }
  check(texts.valid.empty() || !arguments.validation, "--validation: ", texts.valid.empty() ? "" : texts.valid.front(),
        " is for validation by its name; leave --validation out, or name the files one by one");
  for (const std::string& file : texts.test)
    std::printf("not used, because its name ends with test: %s\n", file.c_str());
  std::error_code error;
  check(!fs::exists(arguments.out, error), arguments.out, ": exists already; name a new folder");
  const std::unique_ptr<data::Tokenizer> tokenizer = tokenizer_of(arguments, texts);
  std::printf("tokenizer: %s\n", tokenizer->name().c_str());
  if (tokenizer->size() < arguments.train_bpe)
    std::printf("notice: --train-bpe %lld: no further pair of tokens occurs twice\n",
                static_cast<long long>(arguments.train_bpe));
  // The folder gets its name when it is complete.
  const std::string partial = arguments.out + ".partial";
  const bool made = fs::create_directories(partial, error);
  check(!error, partial, ": cannot be created: ", error.message());
  check(made, partial, ": exists already, from an interrupted or a running tokenize; remove it or name another folder");
  try {
    write_shards(arguments, texts, *tokenizer, partial);
    fs::rename(partial, arguments.out);
  } catch (...) {
    fs::remove_all(partial, error);
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    for (const std::string& arg : args) {
      if (arg == "--help" || arg == "-h") return std::printf("%s\n", kUsage) > 0 ? 0 : 1;
      if (arg == "--version")
        return std::printf("tokenize (Godwit %s), sources %s\n", apps::version(), apps::source_hash()) > 0 ? 0 : 1;
    }
    run(parse(args));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tokenize: %s\n", error.what());
    return 1;
  }
}
