#include "data/text/token_shard.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/check.h"

namespace godwit::data {
namespace {

using Header = std::array<int32_t, 256>;
constexpr int32_t kMagic16 = 20240520, kVersion16 = 1, kMagic32 = 20240801, kVersion32 = 7;

struct Mapping {
  const char* data;
  size_t bytes;
};

std::shared_ptr<const Mapping> map_file(const std::string& path) {
  // O_NONBLOCK: opening a FIFO does not wait for a writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  check(file >= 0, path, ": cannot be opened: ", std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const auto bytes = static_cast<size_t>(status.st_size);
  void* data = regular && bytes > 0 ? ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0) : nullptr;
  const int error = errno;
  ::close(file);
  check(regular, path, ": is not a regular file, expected a shard of tokens");
  check(bytes > 0, path, ": is empty, expected a shard of tokens");
  check(data != MAP_FAILED, path, ": cannot be mapped: ", std::strerror(error));
  return {new Mapping{static_cast<const char*>(data), bytes}, [](const Mapping* mapping) {
            ::munmap(const_cast<char*>(mapping->data), mapping->bytes);
            delete mapping;
          }};
}

// Throws if a plain shard begins like another format: with a header whose word 2 is the number of ids behind it, or with
// ids of 32 or 64 bits.
void check_plain(const TokenStream& tokens, const std::string& path) {
  constexpr int64_t kFewest = 256, kMost = 65536, kHeaderIds = 512;  // numbers of uint16
  if (tokens.size() < kFewest) return;
  std::vector<int32_t> ids(static_cast<size_t>(std::min(tokens.size(), kMost)));
  tokens.read(0, ids);
  const auto are_zero = [&](size_t first) {  // every second uint16
    for (size_t i = first; i < ids.size(); i += 2)
      if (ids[i] != 0) return false;
    return true;
  };
  const auto word = [&](size_t i) { return ids[2 * i] + (int64_t{ids[2 * i + 1]} << 16); };
  const int64_t behind = tokens.size() - kHeaderIds;
  check(behind <= 0 || (word(2) != behind && 2 * word(2) != behind), path, ": begins with a header of the magic ",
        word(0), ", expected ", kMagic16, ", ", kMagic32, " or no header");
  check(are_zero(0) || !are_zero(1), path,
        ": has no header, and every second uint16 of its beginning is 0, as in ids of 32 or 64 bits; ",
        "expected uint16 ids, or a file with a header from tools/tokenize");
}

}  // namespace

Shard open_shard(const std::string& path) {
  const std::shared_ptr<const Mapping> mapping = map_file(path);
  const size_t bytes = mapping->bytes;
  int32_t magic = 0;
  std::memcpy(&magic, mapping->data, std::min(sizeof magic, bytes));
  Shard shard;
  if (magic != kMagic16 && magic != kMagic32) {
    check(bytes % 2 == 0, path, ": has ", bytes, " bytes and no header, expected uint16 ids, two bytes each");
    shard.tokens = TokenStream(mapping, mapping->data, 2, static_cast<int64_t>(bytes / 2), path);
    shard.plain = true;
    check_plain(shard.tokens, path);
    return shard;
  }
  Header header;
  check(bytes >= sizeof header, path, ": is truncated: has ", bytes, " bytes, expected a header of ", sizeof header);
  std::memcpy(header.data(), mapping->data, sizeof header);
  const int32_t version = magic == kMagic16 ? kVersion16 : kVersion32;
  const int width = magic == kMagic16 ? 2 : 4;
  check(header[1] == version, path, ": has version ", header[1], ", expected ", version, " with magic ", magic);
  const int64_t count = header[2], held = static_cast<int64_t>(bytes - sizeof header) / width;
  check(count > 0, path, ": its header states ", count, " tokens, expected at least 1");
  check(count == held && (bytes - sizeof header) % static_cast<size_t>(width) == 0, path, ": its header states ", count,
        " tokens of ", width, " bytes, but ", bytes - sizeof header, " bytes follow");
  shard.tokens = TokenStream(mapping, mapping->data + sizeof header, width, count, path);
  shard.vocabulary = std::max(header[3], 0);
  std::memcpy(&shard.fingerprint, &header[4], sizeof shard.fingerprint);
  return shard;
}

ShardWriter::ShardWriter(const std::string& path, ShardFormat format, const Tokenizer& tokenizer)
    : path_(path),
      temporary_(path + ".tmp"),
      format_(format),
      vocabulary_(tokenizer.size()),
      fingerprint_(tokenizer.fingerprint()) {
  check(format == ShardFormat::header || vocabulary_ <= kMostIds16, path, ": ", vocabulary_,
        " tokens do not fit into the uint16 ids of a shard without header; use shards with headers");
  errno = 0;
  file_.open(temporary_, std::ios::binary);
  check(file_.is_open(), path_, ": cannot be written: ", std::strerror(errno));
  if (format_ == ShardFormat::header) write(Header{}.data(), sizeof(Header));
}

ShardWriter::~ShardWriter() {
  if (!closed_) std::remove(temporary_.c_str());
}

void ShardWriter::write(const void* data, size_t bytes) {
  errno = 0;
  file_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  check(file_.good(), path_, ": cannot be written: ", std::strerror(errno));
}

void ShardWriter::add(std::span<const int32_t> ids) {
  count_ += std::ssize(ids);
  check(format_ == ShardFormat::plain || count_ <= INT32_MAX, path_, ": ", count_,
        " tokens, but a header states at most 2^31 - 1; use several shards");
  if (vocabulary_ > kMostIds16) return write(ids.data(), ids.size_bytes());
  const std::vector<uint16_t> narrow(ids.begin(), ids.end());
  write(narrow.data(), 2 * narrow.size());
}

void ShardWriter::close() {
  if (format_ == ShardFormat::header) {
    Header header{};
    const bool wide = vocabulary_ > kMostIds16;
    header[0] = wide ? kMagic32 : kMagic16;
    header[1] = wide ? kVersion32 : kVersion16;
    header[2] = static_cast<int32_t>(count_);
    header[3] = static_cast<int32_t>(vocabulary_);
    std::memcpy(&header[4], &fingerprint_, sizeof fingerprint_);
    file_.seekp(0);
    write(header.data(), sizeof header);
  }
  errno = 0;
  file_.close();
  check(file_.good() && std::rename(temporary_.c_str(), path_.c_str()) == 0, path_,
        ": cannot be written: ", std::strerror(errno));
  closed_ = true;
}

}  // namespace godwit::data
