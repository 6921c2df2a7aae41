#include "engine/excerpt.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "engine/utf8.h"

namespace godwit {
namespace {

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    const uint32_t bytes = code.valid ? code.bytes : 1;
    if (code.valid && !is_control(code.value)) {
      result += text.substr(at, bytes);
    } else if (text[at] == '\n' || text[at] == '\r' || text[at] == '\t') {
      result += text[at] == '\n' ? "\\n" : text[at] == '\r' ? "\\r" : "\\t";
    } else {
      char escape[8];
      std::snprintf(escape, sizeof escape, bytes > 1 ? "\\u%04x" : "\\x%02x",
                    static_cast<unsigned>(bytes > 1 ? code.value : static_cast<uint8_t>(text[at])));
      result += escape;
    }
    at += bytes;
  }
  return result;
}

std::string excerpt(std::string_view text, size_t limit) {
  if (text.size() <= limit) return printable(text);
  size_t end = limit;
  while (end > 0 && limit - end < 3 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) --end;  // no cut code point
  return printable(text.substr(0, end)) + "…";
}

std::string excerpts(const std::vector<std::string>& texts, size_t limit) {
  std::string all;
  for (size_t i = 0; i < std::min(texts.size(), limit); ++i) all += (i ? ", " : "") + excerpt(texts[i]);
  return texts.size() > limit ? all + " and " + std::to_string(texts.size() - limit) + " more" : all;
}

}  // namespace godwit
