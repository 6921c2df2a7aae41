#include "data/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "data/json_file.h"
#include "data/text/byte_bpe_files.h"
#include "data/text/char_tokenizer.h"
#include "engine/check.h"
#include "engine/excerpt.h"

namespace godwit::data {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// Names of a vocabulary and of its merges: HuggingFace's and OpenAI's.
constexpr std::pair<const char*, const char*> kPairs[] = {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}};

constexpr const char* kSentencePiece = "tokenizer.model";

// The tokenizer files of a folder. The first one is used.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const char* name : {kCharactersFile, kTokenizerJson})
    if (const fs::path path = fs::path(folder) / name; is_file(path)) files.push_back(path.string());
  for (const auto& [vocab, merges] : kPairs)
    if (const fs::path path = fs::path(folder) / vocab; is_file(path) && is_file(fs::path(folder) / merges))
      files.push_back(path.string());
  const fs::path other = fs::path(folder) / kSentencePiece;  // load_tokenizer() refuses it
  if (files.empty() && is_file(other)) files.push_back(other.string());
  return files;
}

// Throws unless the tokenizer is GPT-2's: pattern and added tokens of other tokenizers are only in tokenizer.json.
void check_pair(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  const fs::path description = folder / "tokenizer_config.json", added = folder / "added_tokens.json";
  if (is_file(folder / kTokenizerJson)) return;
  const std::string remedy = ", which " + fs::path(file).filename().string() + " and its merges do not describe " +
                             "completely; add its tokenizer.json to the folder";
  const auto check_added = [&](const std::string& place, const std::string& token) {
    check(token == "<|endoftext|>", place, ": describes a tokenizer with the added token \"", excerpt(token), '"',
          remedy);
  };
  if (is_file(added)) {
    const JsonFile tokens(added.string(), "an added_tokens.json");
    tokens.root().each_member([&](const std::string& token, const JsonNode&) { check_added(added.string(), token); });
  }
  if (!is_file(description)) return;
  const JsonFile config(description.string(), "a tokenizer_config.json");
  const auto of_class = config.root().find("tokenizer_class");
  const std::string name = of_class ? of_class->text() : "";
  check(name.empty() || name.starts_with("GPT2"), description.string(), ": describes a ", excerpt(name), remedy);
  if (const auto prefix = config.root().find("add_prefix_space"))
    check(!prefix->boolean(), prefix->where(), kPrefixSpace);
  if (const auto tokens = config.root().find("added_tokens_decoder"))
    tokens->each_member([&](const std::string&, const JsonNode& token) {
      check_added(description.string(), token.member("content").text());
    });
}

bool is_of_pair(const fs::path& name) {
  return std::ranges::any_of(kPairs, [&](const auto& pair) { return name == pair.first || name == pair.second; });
}

std::unique_ptr<Tokenizer> load_file(const std::string& file) {
  const fs::path name = fs::path(file).filename();
  if (name == kCharactersFile) return std::make_unique<CharTokenizer>(read_characters(file));
  for (const auto& [vocab, merges] : kPairs)
    if (name == vocab || name == merges) {
      check_pair(file);
      const fs::path parent = fs::path(file).parent_path();
      return std::make_unique<ByteBpe>(read_bpe((parent / vocab).string(), (parent / merges).string()));
    }
  check(name != kSentencePiece, file,
        ": is a SentencePiece model; expected a byte-level BPE model such as GPT-2, LLaMA 3 ", "or Qwen 2");
  return std::make_unique<ByteBpe>(read_bpe_json(file));
}

// Whether two files of a folder can be of one tokenizer. A vocab.json may lack tokens that were added later.
bool agree(const Tokenizer& a, const Tokenizer& b) {
  const auto *first = dynamic_cast<const ByteBpe*>(&a), *second = dynamic_cast<const ByteBpe*>(&b);
  if (!first || !second) return false;
  const std::vector<std::string>&x = first->model().tokens, &y = second->model().tokens;
  return std::equal(x.begin(), x.begin() + std::min(std::ssize(x), std::ssize(y)), y.begin()) &&
         first->model().merges == second->model().merges;
}

// Throws if a vocabulary and its merges lack rules of the tokenizer.json in their folder.
void check_complete(const std::string& file, const Tokenizer& tokenizer) {
  const fs::path json = fs::path(file).parent_path() / kTokenizerJson;
  if (!is_of_pair(fs::path(file).filename()) || !is_file(json)) return;
  const std::unique_ptr<Tokenizer> complete = load_file(json.string());
  check(!agree(tokenizer, *complete) || tokenizer.fingerprint() == complete->fingerprint(), file,
        ": has the tokens of ", json.string(), ", but not its pattern, normalizer and added tokens; use ",
        json.string());
}

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 1);
  encode(text, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    check(id >= 0 && id < size(), "tokenizer: the id ", id, " is not below the size of the vocabulary, ", size());
    text += token(id);
  }
  return text;
}

bool has_tokenizer(const std::string& folder) { return !files_in(folder).empty(); }

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    std::unique_ptr<Tokenizer> tokenizer = load_file(path);
    check_complete(path, *tokenizer);
    return tokenizer;
  }
  const std::vector<std::string> files = files_in(path);
  check(!files.empty(), path, ": holds no tokenizer; expected tokenizer.json, vocab.json with merges.txt, or ",
        kCharactersFile);
  std::unique_ptr<Tokenizer> tokenizer = load_file(files.front());
  for (size_t i = 1; i < files.size(); ++i)
    check(agree(*tokenizer, *load_file(files[i])), files[i], ": is another tokenizer than ", files.front(),
          "; remove the wrong file, or select the right one with --tokenizer FILE");
  return tokenizer;
}

}  // namespace godwit::data
