// Small text files.
#pragma once
#include <cstdint>
#include <string>

namespace godwit {

// Returns the content of a file or pipe. Throws an Error that begins with the path and ends with `hint` ("; --config
// expects a JSON file") for a folder, an unreadable file, and a file of more than `mib` MiB.
std::string read_text_file(const std::string& path, int64_t mib, const std::string& hint);

// Writes to path + ".tmp", then renames the file. A reader sees either the old or the new text. Throws an Error that
// names the file and the cause.
void write_text_file(const std::string& path, const std::string& text);

}  // namespace godwit
