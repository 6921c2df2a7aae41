// ByteTrie: finds the longest word of a fixed set that is a prefix of a text. The trie is a double array (Aoe, An
// efficient digital search algorithm by using a double-array structure, 1989) and needs one load per byte.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace godwit::data {

// A set of words with values.
class ByteTrie {
 public:
  struct Match {  // result of a search
    int32_t value = -1;  // value of the word; −1 if no word matches
    size_t length = 0;   // length of the word; 0 if no word matches
  };

  // Values must not be negative. Empty words and words that contain a 0 byte are never found.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> words);

  Match longest(std::string_view text) const {  // the longest word that is a prefix of `text`
    Match match;
    uint32_t base = root_;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      const Node node = nodes_[base + byte];
      if (node.byte != byte) break;
      if (node.value >= 0) match = {node.value, i + 1};
      base = node.base;
    }
    return match;
  }

 private:
  // The children of a node are at base + byte. All bases differ, so the stored byte identifies the parent.
  struct Node {
    uint32_t byte : 8 = 0, base : 24 = 0;
    int32_t value = -1;
  };

  uint32_t place(const std::vector<uint8_t>& bytes);

  std::vector<Node> nodes_;
  std::vector<bool> base_taken_;
  uint32_t first_free_ = kFirst, root_ = 0;
  static constexpr uint32_t kFirst = 256;  // entries below kFirst belong to leaves, which have base 0 and no children
};

}  // namespace godwit::data
