// Reads the King James Bible of the Debian package bible-kjv-text (/usr/lib/bible.data).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace godwit::data {

bool is_bible(const std::vector<uint8_t>& bytes);  // checks only the first bytes
bool is_bible_file(const std::string& path);       // false also if the file cannot be read

// Returns one line per verse, without the verse number, and a blank line between chapters. Throws one Error that names
// `path` if the file is corrupt.
std::string bible_text(const std::vector<uint8_t>& bytes, const std::string& path);

}  // namespace godwit::data
