#include "data/text/invalid_utf8.h"

#include "engine/utf8.h"

namespace godwit::data {

void InvalidUtf8::add(const std::string& file, std::string_view text, size_t begin) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    if (!code.valid && ++count == 1) first = file + " at byte " + std::to_string(begin + at);
    at += code.bytes;
  }
}

std::string InvalidUtf8::notice(const std::string& effect) const {
  if (count == 0) return "";
  return std::to_string(count) + " byte sequences of the text are not valid UTF-8, the first in " + first + "; " +
         effect;
}

}  // namespace godwit::data
