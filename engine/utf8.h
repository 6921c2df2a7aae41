// Decodes and encodes UTF-8, one code point at a time.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace godwit {

constexpr char32_t kReplacement = 0xfffd;  // replacement character for invalid bytes

// Result of decode_utf8().
struct CodePoint {
  char32_t value;  // kReplacement if invalid
  uint32_t bytes;  // number of bytes of the text, at least 1
  bool valid;      // whether the bytes encode a code point
};

// Decodes the code point at text[at]; requires at < text.size(). Each maximal prefix of a valid sequence in invalid
// bytes gives one kReplacement, as in Python's bytes.decode("utf-8", "replace").
inline CodePoint decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const uint32_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return {kReplacement, 1, false};
  // Range of the second byte after the leads E0, ED, F0 and F4. The range excludes overlong forms, surrogates and code
  // points above U+10FFFF.
  const uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  char32_t value = lead & (0x7fu >> length);
  for (uint32_t i = 1; i < length; ++i) {
    if (at + i >= text.size() || byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xbf))
      return {kReplacement, i, false};
    value = value << 6 | (byte(i) & 0x3fu);
  }
  return {value, length, true};
}

inline bool is_utf8(std::string_view text) {  // whether all bytes are valid
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    if (!code.valid) return false;
    at += code.bytes;
  }
  return true;
}

// Appends a code point below 0x110000 and returns the number of bytes.
inline uint32_t append_utf8(std::string& to, char32_t value) {
  const auto add = [&](char32_t bits) { to.push_back(static_cast<char>(bits)); };
  if (value < 0x80) return add(value), 1;
  if (value < 0x800) return add(0xc0 | value >> 6), add(0x80 | (value & 0x3f)), 2;
  if (value < 0x10000) return add(0xe0 | value >> 12), add(0x80 | (value >> 6 & 0x3f)), add(0x80 | (value & 0x3f)), 3;
  add(0xf0 | value >> 18), add(0x80 | (value >> 12 & 0x3f)), add(0x80 | (value >> 6 & 0x3f)),
      add(0x80 | (value & 0x3f));
  return 4;
}

}  // namespace godwit
