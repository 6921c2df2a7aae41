// Tokenizer: converts text to token ids and back, for language models that predict the next token.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace godwit::data {

// A vocabulary and its rules. All functions are thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string name() const = 0;                    // kind and size of the tokenizer, for messages
  virtual int64_t size() const = 0;                        // ids are in [0, size())
  virtual std::optional<int32_t> end_of_text() const = 0;  // id of the token between documents; empty if none
  virtual uint64_t fingerprint() const = 0;                // equal for tokenizers that give equal ids

  // Appends the ids of a text.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  std::vector<int32_t> encode(std::string_view text) const;  // the ids of a text

  // Bytes of one token. They may be invalid UTF-8, because a character may span several tokens. Requires 0 <= id <
  // size().
  virtual std::string_view token(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;  // whether a token marks structure, such as the end of a text
  // The text of the tokens, including special ones. Throws if an id is outside [0, size()).
  std::string decode(std::span<const int32_t> ids) const;

  // Writes files to an existing folder. load_tokenizer() restores the tokenizer from these files.
  virtual void save(const std::string& folder) const = 0;
};

// Loads a tokenizer from a folder or file: characters.json (CharTokenizer), tokenizer.json (HuggingFace), or vocab.json
// with merges.txt in the same folder (also under OpenAI's names encoder.json and vocab.bpe). Throws an Error that names
// the file if it is missing, malformed, of an unsupported kind, or contradicts another tokenizer file of the folder.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);
bool has_tokenizer(const std::string& folder);  // whether the folder contains such files

}  // namespace godwit::data
