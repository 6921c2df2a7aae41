// Makes text from files and command lines safe for messages: control characters are escaped, and long text is cut.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace godwit {

// Escapes control characters and invalid UTF-8, so that a terminal does not interpret them: a line break becomes \n, a
// byte \x1b and a code point \u202e. Control characters include Unicode line separators and changes of writing
// direction.
std::string printable(std::string_view text);

// printable() of the text. Text of more than `limit` bytes is cut and ends with "…".
std::string excerpt(std::string_view text, size_t limit = 100);

// Joins excerpts of at most `limit` texts: "a, b, c and 7 more".
std::string excerpts(const std::vector<std::string>& texts, size_t limit = 5);

}  // namespace godwit
