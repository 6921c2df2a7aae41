#include "data/idx.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "data/file.h"
#include "engine/check.h"

namespace godwit::data {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;

std::string product(const std::vector<int64_t>& extents) {
  std::ostringstream text;
  for (size_t i = 0; i < extents.size(); ++i) text << (i ? "x" : "") << extents[i];
  return text.str();
}

// The extents in the header; `used` bytes of the content are then read.
std::vector<int64_t> read_extents(const std::string& path, const std::vector<uint8_t>& bytes, size_t& used) {
  check(bytes.size() >= 4, path, ": too short for an IDX header");
  check(bytes[0] == 0 && bytes[1] == 0, path, ": not an IDX file (its first two bytes are not zero)");
  check(bytes[2] == kUnsignedByte, path, ": IDX element type ", int{bytes[2]}, ", only unsigned bytes (8) are read");
  check(bytes[3] >= 1 && bytes[3] <= 4, path, ": IDX header with ", int{bytes[3]}, " dimensions, expected 1 to 4");
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
  std::vector<uint8_t> bytes = read_unpacked(path, "an IDX file");
  check(!bytes.empty(), path, ": is empty");
  Idx idx;
  size_t used = 0;
  idx.extents = read_extents(path, bytes, used);
  const uint64_t found = bytes.size() - used;

  uint64_t total = 1;
  const bool none = std::find(idx.extents.begin(), idx.extents.end(), 0) != idx.extents.end();
  for (int64_t extent : idx.extents) {
    const auto factor = static_cast<uint64_t>(none ? 0 : extent);
    check(factor == 0 || total <= found / factor, path, ": its header promises ", product(idx.extents),
          " bytes, it holds ", found, " (truncated?)");
    total *= factor;
  }
  check(found == total, path, ": more data follows the ", product(idx.extents), " = ", total,
        " bytes its header promises");
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(used));
  idx.values = std::move(bytes);
  return idx;
}

}  // namespace godwit::data
