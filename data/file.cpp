#include "data/file.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/check.h"

namespace godwit::data {
namespace {

constexpr int kGzipWindow = 15 + 16;  // largest window, gzip wrapper required

bool is_gzip(const uint8_t* bytes, size_t count) { return count >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

struct Inflater {
  z_stream stream{};
  explicit Inflater(const std::string& path) {
    check(inflateInit2(&stream, kGzipWindow) == Z_OK, path, ": zlib does not start");
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

std::vector<uint8_t> inflate_all(const std::string& path, const std::vector<uint8_t>& bytes) {
  constexpr size_t kPiece = 1 << 30;  // zlib counts in 32 bits
  Inflater inflater(path);
  z_stream& stream = inflater.stream;
  std::vector<uint8_t> out;
  size_t used = 0, done = 0;
  for (bool ended = false; !ended || used < bytes.size();) {
    if (ended) {
      check(is_gzip(bytes.data() + used, bytes.size() - used), path, ": ", bytes.size() - used,
            " bytes follow the gzip data");
      inflateReset(&stream);
    }
    if (done == out.size()) out.resize(std::max<size_t>({4 * bytes.size(), 2 * out.size(), 1 << 12}));
    const size_t in = std::min(bytes.size() - used, kPiece), room = std::min(out.size() - done, kPiece);
    stream.next_in = const_cast<Bytef*>(bytes.data() + used);
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = out.data() + done;
    stream.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream, Z_NO_FLUSH);
    used += in - stream.avail_in;
    done += room - stream.avail_out;
    check(result != Z_BUF_ERROR, path, ": the gzip data is truncated");
    check(result == Z_OK || result == Z_STREAM_END, path, ": the gzip data is corrupt (",
          stream.msg ? stream.msg : "zlib error " + std::to_string(result), ")");
    ended = result == Z_STREAM_END;
  }
  out.resize(done);
  return out;
}

}  // namespace

std::vector<uint8_t> read_file(const std::string& path, const std::string& expected) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  check(fs::exists(status), path, ": no such file");
  check(!fs::is_directory(status), path, ": is a folder, expected ", expected);
  check(fs::is_regular_file(status), path, ": is not a regular file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  check(file.is_open(), path, ": cannot be opened: ", std::strerror(errno));
  const uint64_t length = fs::file_size(path, error);
  check(!error, path, ": ", error.message());
  std::vector<uint8_t> bytes(length);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(length));
  check(static_cast<uint64_t>(file.gcount()) == length, path, ": read ", file.gcount(), " of ", length, " bytes");
  return bytes;
}

std::vector<uint8_t> read_unpacked(const std::string& path, const std::string& expected) {
  std::vector<uint8_t> bytes = read_file(path, expected);
  return is_gzip(bytes.data(), bytes.size()) ? inflate_all(path, bytes) : bytes;
}

void write_file(const std::string& path, const std::string& content) {
  const std::string temporary = path + ".tmp";
  errno = 0;
  std::ofstream file(temporary, std::ios::binary);
  file << content;
  file.close();
  const bool written = file.good() && std::rename(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  if (!written) std::remove(temporary.c_str());
  check(written, path, ": cannot be written: ", std::strerror(error));
}

}  // namespace godwit::data
