// Reading and writing a whole file.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace godwit::data {

inline constexpr uint64_t kFileLimit = uint64_t{8} << 30;

// All three throw one Error naming the file when it is missing, is no regular file (`expected`: "an IDX file"), cannot
// be read to its end, is larger than `limit` bytes, or takes more memory than there is.
std::vector<uint8_t> read_file(const std::string& path, const std::string& expected, uint64_t limit = kFileLimit);

// Inflated when it is gzip (of one or several members), told by its first bytes; damage, also a wrong checksum, throws.
// The limit is that of the inflated bytes: what is beyond is not inflated.
std::vector<uint8_t> read_unpacked(const std::string& path, const std::string& expected, uint64_t limit = kFileLimit);

// The same, but at most the first `count` bytes; what follows them is neither read nor checked.
std::vector<uint8_t> read_beginning(const std::string& path, const std::string& expected, uint64_t count);

// Whole or not at all: under another name first. Throws one Error naming the file and the cause.
void write_file(const std::string& path, const std::string& content);

}  // namespace godwit::data
