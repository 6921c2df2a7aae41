// Reading and writing a whole file.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace godwit::data {

// Both throw one Error naming the file when it is missing, is no regular file (`expected`: "an IDX file"), or cannot be
// read to its end.
std::vector<uint8_t> read_file(const std::string& path, const std::string& expected);

// Inflated when it is gzip (of one or several members), told by its first bytes; damage, also a wrong checksum, throws.
std::vector<uint8_t> read_unpacked(const std::string& path, const std::string& expected);

// Whole or not at all: under another name first. Throws one Error naming the file and the cause.
void write_file(const std::string& path, const std::string& content);

}  // namespace godwit::data
