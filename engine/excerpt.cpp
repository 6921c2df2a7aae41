#include "engine/excerpt.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace godwit {
namespace {

// Returns the length of the first code point in bytes, or 0 for invalid UTF-8; sets `value`.
size_t code_point(std::string_view text, uint32_t& value) {
  const auto lead = static_cast<uint8_t>(text[0]);
  value = lead;
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (text.size() < length) return 0;
  value = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if ((byte & 0xc0) != 0x80) return 0;
    value = value << 6 | (byte & 0x3fu);
  }
  const uint32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
  const bool surrogate = value >= 0xd800 && value < 0xe000;
  return value >= least && value < 0x110000 && !surrogate ? length : 0;
}

bool is_control(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    uint32_t value = 0;
    const size_t length = code_point(text, value);
    if (length > 0 && !is_control(value)) {
      result += text.substr(0, length);
    } else if (length == 1 && (value == '\n' || value == '\r' || value == '\t')) {
      result += value == '\n' ? "\\n" : value == '\r' ? "\\r" : "\\t";
    } else {
      char escape[8];
      std::snprintf(escape, sizeof escape, length > 1 ? "\\u%04x" : "\\x%02x",
                    static_cast<unsigned>(length > 1 ? value : static_cast<uint8_t>(text[0])));
      result += escape;
    }
    text.remove_prefix(std::max<size_t>(length, 1));
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
