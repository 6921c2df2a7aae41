#include "engine/wrap.h"

#include <algorithm>

namespace godwit {

std::string wrap(const std::string& label, size_t indent, const std::vector<std::string>& words,
                 const std::string& space) {
  constexpr size_t kWidth = 100;  // columns
  std::string text, line = label, before;
  line.resize(std::max(label.size(), indent), ' ');
  for (const std::string& word : words) {
    if (line.size() > indent && line.size() + before.size() + word.size() > kWidth) {
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      line.assign(indent, ' ');
      before.clear();
    }
    line += before + word;
    before = space;
  }
  return text + line + "\n";
}

}  // namespace godwit
