// ByteTrie: the longest word of a fixed set that a text begins with. A double array (Aoe, An efficient digital search
// algorithm by using a double-array structure, 1989): one load for each byte.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace godwit::data {

class ByteTrie {
 public:
  struct Match {
    int32_t value = -1;
    size_t length = 0;  // 0: the text begins with none
  };

  // Words and their values, which are not negative. Words with a byte 0, and the empty one, are never found.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> words);

  Match longest(std::string_view text) const {
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
  // Children of a node lie at its base + byte. Bases differ, so that the byte alone tells whose child lies there.
  struct Node {
    uint32_t byte : 8 = 0, base : 24 = 0;
    int32_t value = -1;
  };

  uint32_t place(const std::vector<uint8_t>& bytes);

  std::vector<Node> nodes_;
  std::vector<bool> base_taken_;
  uint32_t first_free_ = kFirst, root_ = 0;
  static constexpr uint32_t kFirst = 256;  // below it lie the children of leaves, which have none: base 0
};

}  // namespace godwit::data
