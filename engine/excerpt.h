// Text of files and command lines in messages: control characters escaped, long text cut.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace godwit {

// The text with control characters and bytes that are not UTF-8 as \n, \x1b or \u202e, so that a terminal shows them
// and does not obey them. Control characters include those that end a line or change the direction of writing.
std::string printable(std::string_view text);

// printable() of the text, or of its beginning and "…" where it is longer than `limit` bytes.
std::string excerpt(std::string_view text, size_t limit = 100);

// The beginnings of at most `limit` of the texts: "a, b, c and 7 more".
std::string excerpts(const std::vector<std::string>& texts, size_t limit = 5);

}  // namespace godwit
