#include "data/text/byte_bpe.h"

#include <algorithm>

#include "data/text/byte_characters.h"
#include "data/text/nfc.h"
#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/hash.h"
#include "engine/utf8.h"

namespace godwit::data {
namespace {

std::vector<std::pair<std::string_view, int32_t>> contents_of(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<std::pair<std::string_view, int32_t>> contents;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& content = tokens[i].content;
    check(!content.empty(), "tokenizer: the added token ", tokens[i].id, " is empty");
    check(content.find('\0') == content.npos, "tokenizer: the added token ", tokens[i].id, " contains a byte 0");
    if (tokens[i].normalized == normalized) contents.emplace_back(tokens[i].content, static_cast<int32_t>(i));
  }
  return contents;
}

bool is_space(char32_t code) { return CharClasses::instance().of(code) == CharClass::space; }

// The start of the white space that ends at `end`, at least `begin`.
size_t spaces_before(std::string_view text, size_t begin, size_t end) {
  while (end > begin) {
    size_t at = end - 1;
    while (at > begin && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) --at;
    const CodePoint code = decode_utf8(text.substr(0, end), at);
    if (!is_space(code.value) || at + code.bytes != end) break;
    end = at;
  }
  return end;
}

size_t spaces_behind(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint code = decode_utf8(text, at);
    if (!is_space(code.value)) break;
    at += code.bytes;
  }
  return at;
}

}  // namespace

ByteBpe::AddedSet::AddedSet(const std::vector<AddedToken>& tokens, bool normalized)
    : trie(contents_of(tokens, normalized)) {
  for (const auto& [content, index] : contents_of(tokens, normalized)) {
    first[static_cast<uint8_t>(content[0])] = true;
    empty = false;
  }
}

ByteBpe::ByteBpe(ByteBpeModel model)
    : model_(std::move(model)),
      added_(model_.added, false),
      added_normalized_(model_.added, true),
      pattern_(model_.pattern) {
  check_tokens();
  set_merges();
  set_fingerprint();
  constexpr size_t kMostWords = 1 << 17;
  cache_ = std::make_unique<WordCache>(std::min(kMostWords, 4 * model_.tokens.size()));
}

void ByteBpe::check_tokens() {
  const std::vector<std::string>& tokens = model_.tokens;
  check(tokens.size() < size_t{1} << 31, "tokenizer: ", tokens.size(), " tokens, expected fewer than 2^31");
  byte_ids_.fill(-1);
  special_.resize(tokens.size());
  for (const AddedToken& added : model_.added) {
    check(added.id >= 0 && added.id < size() && tokens[static_cast<size_t>(added.id)] == added.content,
          "tokenizer: the added token \"", excerpt(added.content), "\" has the id ", added.id,
          ", which is not its token");
    if (added.special) special_[static_cast<size_t>(added.id)] = true;
  }
  for (size_t id = 0; id < tokens.size(); ++id) {
    check(!tokens[id].empty(), "tokenizer: token ", id, " is empty");
    const auto [known, is_new] = ids_.emplace(tokens[id], static_cast<int32_t>(id));
    if (!is_new) fail("tokenizer: \"", excerpt(tokens[id]), "\" is token ", known->second, " and token ", id);
    bytes_.push_back(from_byte_characters(tokens[id]).value_or(tokens[id]));
    if (bytes_[id].size() == 1 && decode_utf8(tokens[id], 0).bytes == tokens[id].size())
      byte_ids_[static_cast<uint8_t>(bytes_[id][0])] = static_cast<int32_t>(id);
  }
  for (size_t byte = 0; byte < 256; ++byte)
    check(byte_ids_[byte] >= 0, "tokenizer: no token is \"",
          to_byte_characters(std::string(1, static_cast<char>(byte))), "\", which stands for the byte ", byte,
          "; a byte-level BPE has all 256 bytes");
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"})
    for (const AddedToken& added : model_.added)
      if (!end_of_text_ && added.content == name) end_of_text_ = added.id;
}

void ByteBpe::set_merges() {
  std::vector<PairMerges::Rule> rules;
  std::string merged;
  for (const auto& [left, right] : model_.merges) {
    check(left >= 0 && left < size() && right >= 0 && right < size(), "tokenizer: merge ", rules.size(),
          " names an id outside of the vocabulary");
    merged = model_.tokens[static_cast<size_t>(left)] + model_.tokens[static_cast<size_t>(right)];
    const auto found = ids_.find(merged);
    check(found != ids_.end(), "tokenizer: merge ", rules.size(), " makes \"", excerpt(merged),
          "\", which is not in the vocabulary");
    rules.push_back({left, right, found->second});
  }
  merges_ = std::make_unique<const PairMerges>(rules);
}

void ByteBpe::set_fingerprint() {
  Hash hash;
  hash.add(std::string("byte-level BPE"));
  for (const std::string& token : model_.tokens) hash.add(token);
  hash.add(model_.merges.size());
  for (const auto& [left, right] : model_.merges)
    hash.add(uint64_t{static_cast<uint32_t>(left)} << 32 | uint64_t(right));
  for (const AddedToken& added : model_.added)
    hash.add(static_cast<uint64_t>(added.id) << 4 | uint64_t{added.lstrip} << 2 | uint64_t{added.rstrip} << 1 |
             uint64_t{added.normalized});
  hash.add(static_cast<uint64_t>(model_.pattern) << 2 | uint64_t{model_.ignore_merges} << 1 | uint64_t{model_.nfc});
  fingerprint_ = hash.value();
}

std::string ByteBpe::name() const { return "byte-level BPE, " + std::to_string(size()) + " tokens"; }

void ByteBpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const AddedSet* sets[] = {&added_, &added_normalized_};
  encode_between(text, sets, 2, ids);
}

// The first added token of a set from text[at] on; the longest one at its place.
ByteBpe::AddedMatch ByteBpe::next_added(const AddedSet& set, std::string_view text, size_t at) const {
  for (size_t begin = at; begin < text.size(); ++begin) {
    if (!set.first[static_cast<uint8_t>(text[begin])]) continue;
    const ByteTrie::Match match = set.trie.longest(text.substr(begin));
    if (match.length == 0) continue;
    const AddedToken& token = model_.added[static_cast<size_t>(match.value)];
    const size_t end = begin + match.length;
    return {token.lstrip ? spaces_before(text, at, begin) : begin, token.rstrip ? spaces_behind(text, end) : end,
            token.id};
  }
  return {text.size(), text.size(), -1};
}

// Splits the text at the tokens of sets[0], the stretches between them at those of sets[1], and so on.
void ByteBpe::encode_between(std::string_view text, const AddedSet* const* sets, size_t count,
                             std::vector<int32_t>& ids) const {
  if (count == 0) return encode_plain(text, ids);
  if (sets[0]->empty) return encode_between(text, sets + 1, count - 1, ids);
  for (size_t at = 0; at < text.size();) {
    const AddedMatch match = next_added(*sets[0], text, at);
    if (match.begin > at) encode_between(text.substr(at, match.begin - at), sets + 1, count - 1, ids);
    if (match.id >= 0) ids.push_back(match.id);
    at = match.end;
  }
}

void ByteBpe::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  std::string normal;
  if (model_.nfc) text = normalize_nfc(text, normal);
  for (size_t at = 0; at < text.size();) {
    const size_t end = pattern_.end_of_word(text, at);
    encode_word(text.substr(at, end - at), ids);
    at = end;
  }
}

inline void ByteBpe::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  const bool kept = word.size() <= WordCache::kLongest;
  WordCache::Key key;
  if (kept) {
    key = WordCache::key_of(word);
    if (const std::span<const int32_t> found = cache_->find(key, word); !found.empty()) {
      ids.insert(ids.end(), found.begin(), found.end());
      return;
    }
  }
  std::vector<int32_t> pieces;
  if (model_.ignore_merges)
    if (const auto whole = ids_.find(to_byte_characters(word)); whole != ids_.end()) pieces.push_back(whole->second);
  if (pieces.empty()) {
    pieces.reserve(word.size());
    for (const char byte : word) pieces.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    merges_->apply(pieces);
  }
  if (kept) cache_->add(key, word, pieces);
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

}  // namespace godwit::data
