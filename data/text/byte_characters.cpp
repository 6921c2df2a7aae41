#include "data/text/byte_characters.h"

#include <array>

#include "engine/utf8.h"

namespace godwit::data {
namespace {

constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

constexpr std::array<char32_t, 256> kByteCharacters = [] {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) characters[byte] = stands_for_itself(byte) ? byte : next++;
  return characters;
}();
constexpr size_t kEnd = 0x144;  // behind the last character

constexpr std::array<int16_t, kEnd> kBytes = [] {
  std::array<int16_t, kEnd> bytes{};
  bytes.fill(-1);
  for (uint32_t byte = 0; byte < 256; ++byte) bytes[kByteCharacters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}();

}  // namespace

char32_t character_of(uint8_t byte) { return kByteCharacters[byte]; }

std::string to_byte_characters(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(text, kByteCharacters[static_cast<uint8_t>(byte)]);
  return text;
}

std::optional<std::string> from_byte_characters(std::string_view characters) {
  std::string bytes;
  for (size_t at = 0; at < characters.size();) {
    const CodePoint code = decode_utf8(characters, at);
    if (!code.valid || code.value >= kEnd || kBytes[code.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[code.value]));
    at += code.bytes;
  }
  return bytes;
}

}  // namespace godwit::data
