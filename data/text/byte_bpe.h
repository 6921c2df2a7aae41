// ByteBpe: byte-level byte-pair encoding, the tokenizer of GPT-2, LLaMA 3 and Qwen (Radford et al., Language models are
// unsupervised multitask learners, 2019). HuggingFace's tokenizers give the same ids.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/text/byte_trie.h"
#include "data/text/pair_merges.h"
#include "data/text/tokenizer.h"
#include "data/text/word_cache.h"
#include "data/text/word_pattern.h"

namespace godwit::data {

// A token that is matched verbatim in a text before the text is split into words.
struct AddedToken {
  int32_t id = 0;                       // id in the vocabulary
  std::string content;                  // not empty
  bool special = true;                  // whether the token marks structure, such as the end of a text
  bool lstrip = false, rstrip = false;  // whether the match includes white space before or after the token
  bool normalized = false;              // true: matched after normalization, between tokens that are not `normalized`
};

// A byte-level BPE as stored in its files.
struct ByteBpeModel {
  std::vector<std::string> tokens;                  // tokens by id; bytes are written as GPT-2's characters
  std::vector<std::pair<int32_t, int32_t>> merges;  // ids of the left and right part, most frequent first
  std::vector<AddedToken> added;                    // added tokens; all are also in `tokens`
  size_t added_only = 0;  // number of tokens at the end of `tokens` that are only added tokens
  WordPatternKind pattern = WordPatternKind::gpt2;  // pattern that splits text into words
  bool ignore_merges = false;                       // whether a word that is a token needs no merges (LLaMA 3)
  bool nfc = false;                                 // whether text is converted to Unicode normalization form C (Qwen)
};

// The tokenizer, with a cache of words that all threads share.
class ByteBpe : public Tokenizer {
 public:
  // Throws if a token is empty, is not UTF-8, or occurs twice, if one of the 256 bytes has no token, if a merge does
  // not result in a token, or if an added token is longer than 1,024 bytes.
  explicit ByteBpe(ByteBpeModel model);

  std::string name() const override;
  int64_t size() const override { return std::ssize(model_.tokens); }
  // Id of the first of <|endoftext|>, <|end_of_text|>, </s> and <eos> that is an added token.
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }
  uint64_t fingerprint() const override { return fingerprint_; }
  using Tokenizer::encode;
  // The contents of added tokens become these tokens. No tokens are added around the text. Invalid UTF-8 is kept.
  // decode() restores the bytes of the text, except for NFC, white space matched by `lstrip` and `rstrip`, and added
  // tokens that consist of GPT-2's byte characters.
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string_view token(int32_t id) const override { return bytes_[static_cast<size_t>(id)]; }
  bool is_special(int32_t id) const override { return special_[static_cast<size_t>(id)]; }
  // Writes tokenizer.json. Also writes vocab.json and merges.txt if read_bpe() can restore the tokenizer from them.
  void save(const std::string& folder) const override;

  const ByteBpeModel& model() const { return model_; }  // the model passed to the constructor

 private:
  struct AddedMatch {
    size_t begin, end;   // byte range in the text, including white space
    size_t content_end;  // end of the content, without white space
    int32_t id;          // -1: no match
  };
  // Added tokens that are matched in one search.
  struct AddedSet {
    explicit AddedSet(const std::map<std::string, int32_t>& contents);
    std::array<bool, 256> first{};  // first bytes of the contents
    bool empty = true;
    ByteTrie trie;  // values are indices into ByteBpeModel::added
  };

  void check_tokens();
  void set_merges();
  void set_fingerprint();
  size_t vocabulary() const { return model_.tokens.size() - model_.added_only; }
  AddedMatch next_added(const AddedSet& set, std::string_view text, size_t at, size_t search) const;
  template <class Encode>
  void encode_between(std::string_view text, const AddedSet& set, std::vector<int32_t>& ids,
                      const Encode& encode_stretch) const;
  void encode_words(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  ByteBpeModel model_;
  std::vector<std::string> bytes_;  // by id
  std::vector<bool> special_;       // by id
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<std::string_view, int32_t> ids_;  // id by content; views of model_.tokens
  AddedSet added_, added_normalized_;                  // matched in the text, and in the normalized text
  WordPattern pattern_;
  std::unique_ptr<const PairMerges> merges_;
  std::unique_ptr<WordCache> cache_;
  std::optional<int32_t> end_of_text_;
  uint64_t fingerprint_ = 0;
};

}  // namespace godwit::data
