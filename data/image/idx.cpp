#include "data/image/idx.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "data/file.h"
#include "engine/check.h"

namespace godwit::data {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr uint8_t kMostDimensions = 4;
constexpr uint64_t kMostIdxBytes = uint64_t{1} << 62;

std::string product(const std::vector<int64_t>& extents) {
  std::ostringstream text;
  for (size_t i = 0; i < extents.size(); ++i) text << (i ? "x" : "") << extents[i];
  return text.str();
}

// Parses the extents; sets `used` to the size of the header.
std::vector<int64_t> read_extents(const std::string& path, const std::vector<uint8_t>& bytes, size_t& used) {
  check(bytes.size() >= 4, path, ": too short for an IDX header");
  check(bytes[0] == 0 && bytes[1] == 0, path, ": not an IDX file (its first two bytes are not zero)");
  check(bytes[2] == kUnsignedByte, path, ": IDX element type ", int{bytes[2]}, ", expected unsigned bytes (8)");
  check(bytes[3] >= 1 && bytes[3] <= kMostDimensions, path, ": IDX header with ", int{bytes[3]},
        " dimensions, expected 1 to ", int{kMostDimensions});
  const size_t dimensions = bytes[3];
  used = 4 + 4 * dimensions;
  check(bytes.size() >= used, path, ": the IDX header ends within its ", dimensions, " dimensions");
  std::vector<int64_t> extents;
  for (size_t i = 4; i < used; i += 4)
    extents.push_back(int64_t{bytes[i]} << 24 | bytes[i + 1] << 16 | bytes[i + 2] << 8 | bytes[i + 3]);
  return extents;
}

}  // namespace

Idx read_idx(const std::string& path) {
  constexpr size_t kLongestHeader = 4 + 4 * kMostDimensions;
  const std::vector<uint8_t> header = read_beginning(path, "an IDX file", kLongestHeader);
  check(!header.empty(), path, ": is empty");
  Idx idx;
  size_t used = 0;
  idx.extents = read_extents(path, header, used);
  uint64_t total = 1;
  const bool none = std::find(idx.extents.begin(), idx.extents.end(), 0) != idx.extents.end();
  for (int64_t extent : idx.extents) {
    const auto factor = static_cast<uint64_t>(none ? 0 : extent);
    total = factor == 0 || total <= kMostIdxBytes / factor ? total * factor : kMostIdxBytes;  // larger than any file
  }

  // Reads one byte more than expected, to detect a file that is too long.
  std::vector<uint8_t> bytes = read_beginning(path, "an IDX file", used + total + 1);
  const uint64_t found = bytes.size() - std::min(bytes.size(), used);
  check(found >= total, path, ": the header specifies ", product(idx.extents), " bytes, the file has ", found,
        "; the file is truncated");
  check(found == total, path, ": more data follows the ", product(idx.extents), " = ", total,
        " bytes given by the header");
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(used));
  idx.values = std::move(bytes);
  return idx;
}

}  // namespace godwit::data
