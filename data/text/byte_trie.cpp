#include "data/text/byte_trie.h"

#include <algorithm>
#include <deque>

#include "engine/check.h"

namespace godwit::data {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> words) : nodes_(2 * kFirst) {
  std::erase_if(words, [](const auto& word) { return word.first.empty() || word.first.find('\0') != word.first.npos; });
  std::sort(words.begin(), words.end());
  struct Family {  // a node; words [begin, end) share its first `depth` bytes
    size_t begin, end, depth, node;
  };
  constexpr size_t kRoot = SIZE_MAX;
  std::deque<Family> open{{0, words.size(), 0, kRoot}};
  std::vector<uint8_t> bytes;
  std::vector<size_t> starts;
  for (; !open.empty(); open.pop_front()) {
    const Family family = open.front();
    bytes.clear();
    starts.clear();
    for (size_t i = family.begin; i < family.end; ++i) {
      const std::string_view word = words[i].first;
      if (word.size() == family.depth) {  // sorts before the words that extend it
        nodes_[family.node].value = words[i].second;
        continue;
      }
      const auto byte = static_cast<uint8_t>(word[family.depth]);
      if (!bytes.empty() && bytes.back() == byte) continue;
      bytes.push_back(byte);
      starts.push_back(i);
    }
    if (bytes.empty()) continue;
    const uint32_t base = place(bytes);
    if (family.node == kRoot) root_ = base;
    else nodes_[family.node].base = base & 0xffffff;
    starts.push_back(family.end);
    for (size_t k = 0; k < bytes.size(); ++k)
      open.push_back({starts[k], starts[k + 1], family.depth + 1, base + bytes[k]});
  }
}

// The first base at which all children fit into free nodes. The search skips a beginning that is at least 95 % full.
uint32_t ByteTrie::place(const std::vector<uint8_t>& bytes) {
  const auto free = [&](uint32_t at) { return at >= nodes_.size() || nodes_[at].byte == 0; };
  uint32_t taken = 0;
  for (uint32_t at = first_free_;; ++at) {
    if (!free(at)) {
      ++taken;
      continue;
    }
    if (20 * uint64_t{taken} >= 19 * uint64_t{at - first_free_ + 1}) {
      first_free_ = at;
      taken = 0;
    }
    const uint32_t base = at - bytes[0];
    check(base < 1u << 24, "trie: the words have too many prefixes, expected at most about 16 million");
    if (base < base_taken_.size() && base_taken_[base]) continue;
    if (!std::all_of(bytes.begin(), bytes.end(), [&](uint8_t byte) { return free(base + byte); })) continue;
    if (nodes_.size() < base + 2 * kFirst) nodes_.resize(2 * size_t{base} + 2 * kFirst);
    if (base_taken_.size() <= base) base_taken_.resize(nodes_.size());
    base_taken_[base] = true;
    for (uint8_t byte : bytes) nodes_[base + byte].byte = byte;
    return base;
  }
}

}  // namespace godwit::data
