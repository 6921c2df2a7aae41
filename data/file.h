// Reads and writes whole files.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

// Datasets, loaders and tokenizers.
namespace godwit::data {

inline constexpr uint64_t kFileLimit = uint64_t{8} << 30;  // 8 GiB, in bytes

// The three read functions throw one Error that names the file if it is missing, is not a regular file, cannot be read
// completely, exceeds `limit` bytes, or does not fit into memory. `expected` is the kind of file for messages ("an IDX
// file").
std::vector<uint8_t> read_file(const std::string& path, const std::string& expected, uint64_t limit = kFileLimit);

// Decompresses gzip data (one or several members), which is detected by the first bytes. Throws on corrupt data or a
// wrong checksum. `limit` applies to the decompressed size; decompression stops beyond it.
std::vector<uint8_t> read_unpacked(const std::string& path, const std::string& expected, uint64_t limit = kFileLimit);

// Like read_unpacked(), but returns at most the first `count` bytes. The remaining bytes are neither read nor checked.
std::vector<uint8_t> read_beginning(const std::string& path, const std::string& expected, uint64_t count);

// Whether a folder has the results of a training run: metrics.jsonl, and a config.json that begins with the name of a
// training program. Searches for data omit such folders.
bool is_run_folder(const std::string& folder);

}  // namespace godwit::data
