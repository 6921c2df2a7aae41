// Lines of limited width, for help texts and tables.
#pragma once
#include <string>
#include <vector>

namespace godwit {

// The label padded to `indent` columns, then the words, with `space` between two of them. Lines have at most 100
// columns; those after the first are indented.
std::string wrap(const std::string& label, size_t indent, const std::vector<std::string>& words,
                 const std::string& space);

}  // namespace godwit
