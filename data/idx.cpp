#include "data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <sstream>

#include "data/file.h"
#include "engine/check.h"

namespace godwit::data {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr uint64_t kDeflateRatio = 1032;  // deflate never expands further (zlib's technical notes)
constexpr int kGzipWindow = 15 + 16;      // largest window, gzip wrapper required

// The content of a file held in memory, read in order; inflated when it is gzip (of one or several members).
class Content {
 public:
  Content(const std::string& path, const std::vector<uint8_t>& bytes) : path_(path), bytes_(bytes) {
    gzip_ = bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
    if (gzip_) check(inflateInit2(&stream_, kGzipWindow) == Z_OK, path, ": zlib does not start");
  }
  ~Content() {
    if (gzip_) inflateEnd(&stream_);
  }
  Content(const Content&) = delete;
  Content& operator=(const Content&) = delete;

  uint64_t limit() const { return gzip_ ? kDeflateRatio * bytes_.size() : bytes_.size(); }  // bytes it can hold

  // Fills `to` as far as the content reaches and returns how many bytes that were.
  size_t read(uint8_t* to, size_t count) {
    if (gzip_) return inflate_to(to, count);
    const size_t taken = std::min(count, bytes_.size() - used_);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(used_), taken, to);
    used_ += taken;
    return taken;
  }

 private:
  size_t inflate_to(uint8_t* to, size_t count) {
    constexpr size_t kPiece = 1 << 30;  // zlib counts in 32 bits
    size_t done = 0;
    while (done < count && !(ended_ && used_ == bytes_.size())) {
      if (ended_) next_member();
      const size_t in = std::min(bytes_.size() - used_, kPiece), out = std::min(count - done, kPiece);
      stream_.next_in = const_cast<Bytef*>(bytes_.data() + used_);
      stream_.avail_in = static_cast<uInt>(in);
      stream_.next_out = to + done;
      stream_.avail_out = static_cast<uInt>(out);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      used_ += in - stream_.avail_in;
      done += out - stream_.avail_out;
      check(result != Z_BUF_ERROR, path_, ": the gzip data is truncated");
      check(result == Z_OK || result == Z_STREAM_END, path_, ": the gzip data is corrupt (",
            stream_.msg ? stream_.msg : "zlib error " + std::to_string(result), ")");
      ended_ = result == Z_STREAM_END;
    }
    return done;
  }

  void next_member() {
    check(bytes_.size() - used_ >= 2 && bytes_[used_] == 0x1f && bytes_[used_ + 1] == 0x8b, path_, ": ",
          bytes_.size() - used_, " bytes follow the gzip data");
    inflateReset(&stream_);
    ended_ = false;
  }

  const std::string& path_;
  const std::vector<uint8_t>& bytes_;
  size_t used_ = 0;
  bool gzip_ = false, ended_ = false;
  z_stream stream_{};
};

std::string product(const std::vector<int64_t>& extents) {
  std::ostringstream text;
  for (size_t i = 0; i < extents.size(); ++i) text << (i ? "x" : "") << extents[i];
  return text.str();
}

std::vector<int64_t> read_extents(const std::string& path, Content& content) {
  uint8_t magic[4];
  check(content.read(magic, 4) == 4, path, ": too short for an IDX header");
  check(magic[0] == 0 && magic[1] == 0, path, ": not an IDX file (its first two bytes are not zero)");
  check(magic[2] == kUnsignedByte, path, ": IDX element type ", int{magic[2]}, ", only unsigned bytes (8) are read");
  check(magic[3] >= 1 && magic[3] <= 4, path, ": IDX header with ", int{magic[3]}, " dimensions, expected 1 to 4");
  std::vector<int64_t> extents;
  for (int i = 0; i < magic[3]; ++i) {
    uint8_t word[4];
    check(content.read(word, 4) == 4, path, ": the IDX header ends within its ", int{magic[3]}, " dimensions");
    extents.push_back(int64_t{word[0]} << 24 | word[1] << 16 | word[2] << 8 | word[3]);
  }
  return extents;
}

}  // namespace

Idx read_idx(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file(path, "an IDX file");
  check(!bytes.empty(), path, ": is empty");
  Content content(path, bytes);
  Idx idx;
  idx.extents = read_extents(path, content);

  uint64_t total = 1;
  const bool none = std::find(idx.extents.begin(), idx.extents.end(), 0) != idx.extents.end();
  for (int64_t extent : idx.extents) {
    const auto factor = static_cast<uint64_t>(none ? 0 : extent);
    check(factor == 0 || total <= content.limit() / factor, path, ": its header promises ", product(idx.extents),
          " bytes, more than a file of ", bytes.size(), " bytes can hold (truncated?)");
    total *= factor;
  }
  idx.values.resize(total);
  const size_t found = content.read(idx.values.data(), total);
  check(found == total, path, ": its header promises ", product(idx.extents), " = ", total, " bytes, it holds ", found,
        " (truncated?)");
  uint8_t extra;
  check(content.read(&extra, 1) == 0, path, ": more data follows the ", product(idx.extents), " = ", total,
        " bytes its header promises");
  return idx;
}

}  // namespace godwit::data
