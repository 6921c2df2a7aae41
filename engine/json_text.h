// Checks of JSON text before it is parsed.
#pragma once
#include <string>
#include <string_view>

namespace godwit {

struct JsonRules {
  int depth;                  // the most objects and arrays within each other
  bool unique_names = false;  // no object names a member twice
};

// Throws one Error that begins with `subject` ("FILE: its header") unless the text is one JSON value within the rules.
// Takes time in proportion to the text. The parser's own callback, which could check the same, does not: it searches
// the whole parent at the end of each object.
void check_json(std::string_view text, const std::string& subject, const JsonRules& rules);

}  // namespace godwit
