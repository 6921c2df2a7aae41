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

// Bounds the time per byte: the search at each position reads at most the length of an added token.
constexpr size_t kLongestAdded = 1024;

// Indices of the added tokens of one set, by content. Of several tokens with equal normal forms, the last one counts.
std::map<std::string, int32_t> contents_of(const ByteBpeModel& model, bool normalized) {
  std::map<std::string, int32_t> contents;
  std::string normal;
  for (size_t i = 0; i < model.added.size(); ++i) {
    const int32_t id = model.added[i].id;
    const std::string& content = model.added[i].content;
    check(!content.empty(), "tokenizer: the added token ", id, " is empty");
    check(content.find('\0') == content.npos, "tokenizer: the added token ", id, " contains a byte 0");
    check(content.size() <= kLongestAdded, "tokenizer: the added token ", id, " has ", content.size(),
          " bytes, expected at most ", kLongestAdded);
    if (model.added[i].normalized != normalized) continue;
    const std::string_view key = normalized && model.nfc ? normalize_nfc(content, normal) : content;
    contents.insert_or_assign(std::string(key), static_cast<int32_t>(i));
  }
  return contents;
}

bool is_bpe_space(char32_t code) { return CharClasses::instance().of(code) == CharClass::space; }

// The start of the white space that ends at `end`, at least `begin`.
size_t spaces_before(std::string_view text, size_t begin, size_t end) {
  while (end > begin) {
    size_t at = end - 1;
    while (at > begin && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) --at;
    const CodePoint code = decode_utf8(text.substr(0, end), at);
    if (!is_bpe_space(code.value) || at + code.bytes != end) break;
    end = at;
  }
  return end;
}

size_t spaces_behind(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint code = decode_utf8(text, at);
    if (!is_bpe_space(code.value)) break;
    at += code.bytes;
  }
  return at;
}

}  // namespace

ByteBpe::AddedSet::AddedSet(const std::map<std::string, int32_t>& contents)
    : empty(contents.empty()), trie({contents.begin(), contents.end()}) {
  for (const auto& [content, index] : contents) first[static_cast<uint8_t>(content[0])] = true;
}

ByteBpe::ByteBpe(ByteBpeModel model)
    : model_(std::move(model)),
      added_(contents_of(model_, false)),
      added_normalized_(contents_of(model_, true)),
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
  check(model_.added_only <= tokens.size(), "tokenizer: ", model_.added_only, " of ", tokens.size(),
        " tokens are only added tokens");
  byte_ids_.fill(-1);
  special_.resize(tokens.size());
  size_t next = vocabulary();
  for (const AddedToken& added : model_.added) {
    check(added.id >= 0 && added.id < size() && tokens[static_cast<size_t>(added.id)] == added.content,
          "tokenizer: the added token \"", excerpt(added.content), "\" has the id ", added.id,
          ", which belongs to another token");
    if (added.special) special_[static_cast<size_t>(added.id)] = true;
    if (static_cast<size_t>(added.id) == next) ++next;
  }
  check(next == tokens.size(), "tokenizer: token ", next, " is not in the vocabulary of ", vocabulary(),
        " tokens, expected an added token, in order of ids");
  for (size_t id = 0; id < tokens.size(); ++id) {
    check(!tokens[id].empty(), "tokenizer: token ", id, " is empty");
    check(is_utf8(tokens[id]), "tokenizer: token ", id, ", \"", excerpt(tokens[id]), "\", is not UTF-8");
    const auto [known, is_new] = ids_.emplace(tokens[id], static_cast<int32_t>(id));
    if (!is_new) fail("tokenizer: \"", excerpt(tokens[id]), "\" is token ", known->second, " and token ", id);
    const std::optional<std::string> bytes = from_byte_characters(tokens[id]);
    bytes_.push_back(bytes.value_or(tokens[id]));
    if (bytes && bytes->size() == 1 && id < vocabulary())
      byte_ids_[static_cast<uint8_t>((*bytes)[0])] = static_cast<int32_t>(id);
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
    check(found != ids_.end() && static_cast<size_t>(found->second) < vocabulary(), "tokenizer: merge ", rules.size(),
          " makes \"", excerpt(merged), "\", which is not in the vocabulary");
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
  // `normalized` has an effect only in these cases. Otherwise, a single search of the original text matches all added
  // tokens.
  const bool in_order = model_.nfc || (!added_.empty && !added_normalized_.empty);
  for (const AddedToken& added : model_.added)
    hash.add(static_cast<uint64_t>(added.id) << 4 | uint64_t{added.lstrip} << 2 | uint64_t{added.rstrip} << 1 |
             uint64_t{added.normalized && in_order});
  if (model_.ignore_merges) hash.add(uint64_t{vocabulary()});  // added tokens are not words
  hash.add(static_cast<uint64_t>(model_.pattern) << 2 | uint64_t{model_.ignore_merges} << 1 | uint64_t{model_.nfc});
  fingerprint_ = hash.value();
}

std::string ByteBpe::name() const { return "byte-level BPE, " + std::to_string(size()) + " tokens"; }

void ByteBpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  std::string normal;
  encode_between(text, added_, ids, [&](std::string_view stretch) {
    if (model_.nfc) stretch = normalize_nfc(stretch, normal);
    encode_between(stretch, added_normalized_, ids, [&](std::string_view words) { encode_words(words, ids); });
  });
}

// The first added token of a set from text[search] on; of several at this position, the longest. The text before `at`
// is already encoded.
ByteBpe::AddedMatch ByteBpe::next_added(const AddedSet& set, std::string_view text, size_t at, size_t search) const {
  for (size_t begin = search; begin < text.size(); ++begin) {
    if (!set.first[static_cast<uint8_t>(text[begin])]) continue;
    const ByteTrie::Match match = set.trie.longest(text.substr(begin));
    if (match.length == 0) continue;
    const AddedToken& token = model_.added[static_cast<size_t>(match.value)];
    const size_t end = begin + match.length;
    return {token.lstrip ? std::max(at, spaces_before(text, at, begin)) : begin,
            token.rstrip ? spaces_behind(text, end) : end, end, token.id};
  }
  return {text.size(), text.size(), text.size(), -1};
}

// Appends the added tokens of a set. Calls encode_stretch(text) for the stretches between them. As in HuggingFace's
// library, an added token may begin in white space that belongs to the previous added token.
template <class Encode>
void ByteBpe::encode_between(std::string_view text, const AddedSet& set, std::vector<int32_t>& ids,
                             const Encode& encode_stretch) const {
  if (set.empty) return encode_stretch(text);
  size_t at = 0, search = 0;
  while (true) {
    const AddedMatch match = next_added(set, text, at, search);
    if (match.begin > at) encode_stretch(text.substr(at, match.begin - at));
    if (match.id < 0) return;
    if (match.begin < match.end) {  // empty: an lstrip token within the white space of the previous token
      ids.push_back(match.id);
      at = match.end;
    }
    search = match.content_end;
  }
}

void ByteBpe::encode_words(std::string_view text, std::vector<int32_t>& ids) const {
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
    if (const auto whole = ids_.find(to_byte_characters(word));
        whole != ids_.end() && static_cast<size_t>(whole->second) < vocabulary())
      pieces.push_back(whole->second);
  if (pieces.empty()) {
    pieces.reserve(word.size());
    for (const char byte : word) pieces.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    merges_->apply(pieces);
  }
  if (kept) cache_->add(key, word, pieces);
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

}  // namespace godwit::data
