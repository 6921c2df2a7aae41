// Shards: files of token ids, which are memory-mapped for reading.
#pragma once
#include <cstdint>
#include <fstream>
#include <span>
#include <string>

#include "data/text/token_stream.h"
#include "data/text/tokenizer.h"

namespace godwit::data {

// Layout of a shard.
enum class ShardFormat {
  plain,   // uint16 ids, as in nanoGPT
  header,  // 256 int32 before the ids, as in llm.c: magic, version, number of ids; uint16 or uint32 ids
};

// A shard. The magic and version in a header give the width of ids: 20240520 and 1 for uint16, 20240801 and 7 for
// uint32. Godwit also stores the tokenizer in the header: vocabulary size at index 3, fingerprint at indices 4 and 5. 0
// means unknown.
struct Shard {
  TokenStream tokens;        // memory-mapped
  int64_t vocabulary = 0;    // size of the vocabulary; 0: unknown
  uint64_t fingerprint = 0;  // Tokenizer::fingerprint(); 0: unknown
  bool plain = false;        // whether the file has no header
};

inline constexpr int64_t kMostIds16 = 65536;  // largest vocabulary whose ids have 16 bits

// Maps a file. A file without a header's magic is a plain shard. Throws an Error that names the file if it is missing,
// empty or truncated, has another version, or is a plain shard that begins like another header or like wider ids.
// If the file is truncated while a stream uses it, the process ends with SIGBUS.
Shard open_shard(const std::string& path);

// Writes a shard under a temporary name. close() gives the file its final name.
class ShardWriter {
 public:
  // Throws if the file cannot be written, or if the ids of a plain shard would exceed 16 bits.
  ShardWriter(const std::string& path, ShardFormat format, const Tokenizer& tokenizer);
  ~ShardWriter();  // removes an unfinished file
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  void add(std::span<const int32_t> ids);  // appends ids of the tokenizer
  void close();                            // writes the header and renames the file
  int64_t size() const { return count_; }  // number of ids added so far

 private:
  void write(const void* data, size_t bytes);

  std::string path_, temporary_;
  ShardFormat format_;
  int64_t vocabulary_;
  uint64_t fingerprint_;
  int64_t count_ = 0;
  bool closed_ = false;
  std::ofstream file_;
};

}  // namespace godwit::data
