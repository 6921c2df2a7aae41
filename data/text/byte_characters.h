// GPT-2's character for each byte, with which vocab.json, merges.txt and tokenizer.json write the bytes of tokens.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace godwit::data {

// Printable characters of Latin-1 stand for themselves, and U+0100 … for the other bytes in ascending order.
char32_t character_of(uint8_t byte);
std::string to_byte_characters(std::string_view bytes);                        // UTF-8
std::optional<std::string> from_byte_characters(std::string_view characters);  // none if one stands for no byte

}  // namespace godwit::data
