// GPT-2's character for each byte. vocab.json, merges.txt and tokenizer.json write the bytes of tokens with them.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace godwit::data {

// The character of a byte: printable characters of Latin-1 themselves; U+0100 … for the other bytes in ascending order.
char32_t character_of(uint8_t byte);
std::string to_byte_characters(std::string_view bytes);                        // the characters as UTF-8
std::optional<std::string> from_byte_characters(std::string_view characters);  // none if a character is of no byte

}  // namespace godwit::data
