// Format, big-endian: "EC02" and a title (84 bytes in total); the size of an unpacked block; the number n of blocks;
// n + 1 offsets, the last being the file size; the first three bytes of a .Z file. The blocks are .Z files without
// these three bytes.
#include "data/text/bible.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "engine/check.h"

namespace godwit::data {
namespace {

constexpr std::string_view kMagic = "EC02";
constexpr size_t kHeader = 84;
constexpr uint32_t kLargestBlock = 1 << 24;
constexpr uint32_t kClear = 256;  // clears the code table
constexpr uint32_t kCodes = 1 << 16;

uint32_t word_at(const std::vector<uint8_t>& bytes, size_t at) {
  return uint32_t{bytes[at]} << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3];
}

// Decompresses the LZW format of compress(1): codes of 9 to 16 bits, lowest bit first, in groups of eight of equal
// width.
class Unpacker {
 public:
  Unpacker(const uint8_t* bytes, size_t count, const std::string& path) : bytes_(bytes), count_(count), path_(path) {}

  void append_to(std::string& text, size_t limit) {
    uint32_t code = 0, previous = kCodes;  // kCodes: none
    std::string word;
    while (next_code(code)) {
      if (code == kClear) {
        align();
        width_ = 9;
        used_ = kClear + 1;
        previous = kCodes;
        continue;
      }
      check(code < kClear || (previous != kCodes && code <= used_), path_, ": is corrupt (code ", code, " of ", used_,
            ")");
      expand(code == used_ ? previous : code, word);
      if (code == used_) word += word[0];
      check(word.size() <= limit, path_, ": is corrupt (a block is longer than the header says)");
      limit -= word.size();
      text += word;
      if (previous != kCodes && used_ < kCodes) {
        prefix_[used_] = static_cast<uint16_t>(previous);
        last_[used_++] = static_cast<uint8_t>(word[0]);
      }
      previous = code;
    }
  }

 private:
  bool next_code(uint32_t& code) {
    if (used_ >= uint32_t{1} << width_ && width_ < 16) {
      align();
      ++width_;
    }
    if (bit_ + width_ > 8 * count_) return false;
    code = 0;
    for (uint32_t i = 0; i < width_; ++i, ++bit_)
      code |= static_cast<uint32_t>(bytes_[bit_ / 8] >> (bit_ % 8) & 1) << i;
    return true;
  }

  // Skips to the end of the group.
  void align() {
    const size_t group = 8 * width_;
    bit_ = group_begin_ + (bit_ - group_begin_ + group - 1) / group * group;
    group_begin_ = bit_;
  }

  void expand(uint32_t code, std::string& word) const {
    word.clear();
    for (; code > kClear; code = prefix_[code]) word += static_cast<char>(last_[code]);
    word += static_cast<char>(code);
    std::ranges::reverse(word);
  }

  const uint8_t* bytes_;
  size_t count_;
  const std::string& path_;
  size_t bit_ = 0, group_begin_ = 0;
  uint32_t width_ = 9, used_ = kClear + 1;
  std::vector<uint16_t> prefix_ = std::vector<uint16_t>(kCodes);
  std::vector<uint8_t> last_ = std::vector<uint8_t>(kCodes);
};

std::string unpack(const std::vector<uint8_t>& bytes, const std::string& path) {
  check(bytes.size() >= kHeader + 12, path, ": is truncated");
  const uint32_t block = word_at(bytes, kHeader), blocks = word_at(bytes, kHeader + 4);
  const size_t table = kHeader + 8;
  check(block <= kLargestBlock && blocks <= (bytes.size() - table) / 4 - 1, path, ": is corrupt (", blocks,
        " blocks of ", block, " bytes)");
  std::string text;
  for (uint32_t i = 0; i < blocks; ++i) {
    const size_t begin = word_at(bytes, table + 4 * i), end = word_at(bytes, table + 4 * i + 4);
    check(begin <= end && end <= bytes.size(), path, ": is corrupt or truncated (block ", i, " is at bytes ", begin,
          " to ", end, " of ", bytes.size(), ")");
    Unpacker(bytes.data() + begin, end - begin, path).append_to(text, block);
  }
  return text;
}

// "Ge1" from "Ge1:1 In the beginning"; "" for other lines.
std::string_view chapter_of(std::string_view line) {
  const size_t colon = line.find(':'), space = line.find(' ');
  const bool labeled = colon != std::string_view::npos && space != std::string_view::npos && colon < space;
  return labeled ? line.substr(0, colon) : std::string_view();
}

}  // namespace

bool is_bible(const std::vector<uint8_t>& bytes) {
  return bytes.size() >= kMagic.size() && std::equal(kMagic.begin(), kMagic.end(), bytes.begin());
}

bool is_bible_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  char bytes[kMagic.size()] = {};
  return std::ifstream(path, std::ios::binary).read(bytes, sizeof(bytes)) &&
         std::string_view(bytes, sizeof(bytes)) == kMagic;
}

std::string bible_text(const std::vector<uint8_t>& bytes, const std::string& path) {
  const std::string packed = unpack(bytes, path);
  std::string text;
  std::string_view rest = packed, chapter;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::string_view of = chapter_of(line);
    if (of.empty()) continue;  // title line
    if (of != chapter) text += '\n';
    chapter = of;
    text += line.substr(line.find(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace godwit::data
