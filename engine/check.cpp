#include "engine/check.h"

namespace godwit {

Error::Error(const std::string& text, const char* file, int line)
    : Error(text, std::string(file) + ":" + std::to_string(line)) {}

Error::Error(const std::string& text, std::string where) : std::runtime_error(text), where_(std::move(where)) {}

Error Error::with_text(const std::string& text) const { return Error(text, where_); }

void detail::raise(const std::string& text, const char* file, int line) { throw Error(text, file, line); }

}  // namespace godwit
