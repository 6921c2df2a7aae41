// The King James Bible as the Debian package bible-kjv-text keeps it (/usr/lib/bible.data).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace godwit::data {

bool is_bible(const std::vector<uint8_t>& bytes);  // by its first bytes

// A line for each verse, without its number, and a blank line between chapters. Throws one Error naming `path` when the
// file is damaged.
std::string bible_text(const std::vector<uint8_t>& bytes, const std::string& path);

}  // namespace godwit::data
