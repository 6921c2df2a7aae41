// Checks JSON text before parsing.
#pragma once
#include <string>
#include <string_view>

namespace godwit {

// Limits of check_json().
struct JsonRules {
  int depth;                  // maximum nesting of objects and arrays
  bool unique_names = false;  // reject objects with duplicate member names
};

// Throws an Error that begins with `subject` ("FILE: its header") unless the text is one JSON value that satisfies the
// rules. Runs in linear time. The parser's callback does not: it searches the whole parent at the end of each object.
void check_json(std::string_view text, const std::string& subject, const JsonRules& rules);

}  // namespace godwit
