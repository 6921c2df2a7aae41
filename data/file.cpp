#include "data/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/check.h"

namespace godwit::data {
namespace {

constexpr int kGzipWindow = 15 + 16;  // maximum window size, gzip format only
constexpr size_t kPiece = 1 << 18;    // bytes of a gzip file per read

bool is_gzip(const uint8_t* bytes, size_t count) { return count >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

// A regular file, read from the beginning.
class Input {
 public:
  Input(const std::string& path, const std::string& expected) : path_(path) {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    check(!error || status.type() == fs::file_type::not_found, path, ": cannot be read: ", error.message());
    check(fs::exists(status), path, ": no such file");
    check(!fs::is_directory(status), path, ": is a folder, expected ", expected);
    check(fs::is_regular_file(status), path, ": is not a regular file");
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    check(descriptor_ >= 0, path, ": cannot be opened: ", std::strerror(errno));
    struct stat opened {};
    if (::fstat(descriptor_, &opened) == 0) size_ = static_cast<uint64_t>(opened.st_size);
  }
  ~Input() { ::close(descriptor_); }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

  // Returns fewer than `count` bytes only at the end of the file.
  size_t read(uint8_t* to, size_t count) {
    size_t done = 0;
    while (done < count) {
      const ssize_t got = ::read(descriptor_, to + done, count - done);
      if (got < 0 && errno == EINTR) continue;
      check(got >= 0, path_, ": cannot be read: ", std::strerror(errno));
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    position_ += done;
    return done;
  }
  uint64_t left() const { return size_ - std::min(size_, position_); }
  void rewind() { position_ = static_cast<uint64_t>(::lseek(descriptor_, 0, SEEK_SET)); }

 private:
  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0, position_ = 0;
};

// The decompressed content of a gzip file with one or several members.
class Inflater {
 public:
  explicit Inflater(Input& input) : input_(input), packed_(kPiece) {
    check(inflateInit2(&stream_, kGzipWindow) == Z_OK, input.path(), ": zlib cannot be initialized");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Returns fewer than `count` bytes only at the end, after all checksums were verified.
  size_t read(uint8_t* to, size_t count) {
    size_t done = 0;
    while (done < count) {
      if (stream_.avail_in < 2) refill();
      if (ended_ && stream_.avail_in == 0) break;
      if (ended_) begin_member();
      const size_t room = std::min<size_t>(count - done, 1 << 30);  // zlib uses 32-bit counts
      stream_.next_out = to + done;
      stream_.avail_out = static_cast<uInt>(room);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      check(result != Z_BUF_ERROR, input_.path(), ": the gzip data is truncated");
      check(result == Z_OK || result == Z_STREAM_END, input_.path(), ": the gzip data is corrupt (",
            stream_.msg ? stream_.msg : "zlib error " + std::to_string(result), ")");
      ended_ = result == Z_STREAM_END;
    }
    return done;
  }

 private:
  void refill() {
    if (stream_.avail_in == 1) packed_[0] = *stream_.next_in;
    stream_.next_in = packed_.data();
    stream_.avail_in += static_cast<uInt>(input_.read(packed_.data() + stream_.avail_in, kPiece - stream_.avail_in));
  }

  void begin_member() {
    check(is_gzip(stream_.next_in, stream_.avail_in), input_.path(), ": ", stream_.avail_in + input_.left(),
          " bytes follow the gzip data");
    inflateReset(&stream_);
    ended_ = false;
  }

  Input& input_;
  std::vector<uint8_t> packed_;
  z_stream stream_{};
  bool ended_ = false;  // between two members
};

void resize(std::vector<uint8_t>& bytes, uint64_t size, const std::string& path) {
  try {
    bytes.resize(size);
  } catch (const std::exception&) {  // bad_alloc, length_error
    fail(path, ": out of memory: cannot allocate ", size, " bytes");
  }
}

std::string size_text(uint64_t bytes) {
  constexpr uint64_t kMiB = 1 << 20;
  return bytes % (1024 * kMiB) == 0 ? detail::concat(bytes / (1024 * kMiB), " GiB")
         : bytes % kMiB == 0        ? detail::concat(bytes / kMiB, " MiB")
                                    : detail::concat(bytes, " bytes");
}

// Returns at most the first `limit` bytes.
std::vector<uint8_t> read_plain(Input& input, uint64_t limit) {
  std::vector<uint8_t> bytes;
  resize(bytes, std::min(input.size(), limit), input.path());
  const size_t read = input.read(bytes.data(), bytes.size());
  check(read == bytes.size(), input.path(), ": read ", read, " of ", bytes.size(), " bytes");
  return bytes;
}

std::vector<uint8_t> read_gzip(Input& input, uint64_t limit) {
  Inflater inflater(input);
  std::vector<uint8_t> bytes;
  uint64_t done = 0;
  while (done == bytes.size() && done < limit) {
    const uint64_t first = 4 * std::clamp<uint64_t>(input.size(), kPiece / 64, 64 * kPiece);
    const uint64_t wanted = std::max<uint64_t>(first, 2 * bytes.size());
    resize(bytes, std::min(wanted, limit), input.path());
    done += inflater.read(bytes.data() + done, bytes.size() - done);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

std::vector<uint8_t> read_file(const std::string& path, const std::string& expected, uint64_t limit) {
  Input input(path, expected);
  check(input.size() <= limit, path, ": has ", input.size(), " bytes, expected ", expected, " of at most ",
        size_text(limit));
  return read_plain(input, limit);
}

std::vector<uint8_t> read_beginning(const std::string& path, const std::string& expected, uint64_t count) {
  Input input(path, expected);
  uint8_t magic[2];
  const bool packed = is_gzip(magic, input.read(magic, sizeof magic));
  input.rewind();
  return packed ? read_gzip(input, count) : read_plain(input, count);
}

std::vector<uint8_t> read_unpacked(const std::string& path, const std::string& expected, uint64_t limit) {
  std::vector<uint8_t> bytes = read_beginning(path, expected, limit + 1);
  check(bytes.size() <= limit, path, ": holds more than ", size_text(limit), ", expected ", expected,
        " of at most this size");
  return bytes;
}

bool is_run_folder(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(folder + "/metrics.jsonl", ignored)) return false;
  std::string begin(64, '\0');
  std::ifstream(folder + "/config.json", std::ios::binary).read(begin.data(), std::ssize(begin));
  return begin.find("\"program\": \"train_") != std::string::npos;
}

}  // namespace godwit::data
