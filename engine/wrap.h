// Lines of limited width, for help texts and tables.
#pragma once
#include <string>
#include <vector>

namespace godwit {

// Returns the label, padded to `indent` columns, followed by the words with `space` between them. Lines have at most
// 100 columns. Lines after the first are indented.
std::string wrap(const std::string& label, size_t indent, const std::vector<std::string>& words,
                 const std::string& space);

}  // namespace godwit
