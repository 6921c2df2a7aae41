// GPT-2's character for each byte. vocab.json, merges.txt and tokenizer.json use these characters for the bytes of
// tokens.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace godwit::data {

// The character of a byte: itself for printable characters of Latin-1, and U+0100 … for the other bytes in ascending
// order.
char32_t character_of(uint8_t byte);
std::string to_byte_characters(std::string_view bytes);                        // the characters as UTF-8
std::optional<std::string> from_byte_characters(std::string_view characters);  // empty if a character has no byte

}  // namespace godwit::data
