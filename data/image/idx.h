// IDX files (MNIST, Fashion-MNIST): big-endian header, then unsigned bytes. Files may be plain or gzip, which is
// detected by content.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace godwit::data {

// Contents of an IDX file.
struct Idx {
  std::vector<int64_t> extents;  // outermost extent first, as in the file
  std::vector<uint8_t> values;   // row-major; as many as the product of the extents
};

// Throws one Error that names the file if it cannot be read, is not IDX of unsigned bytes, or does not have exactly the
// length given by its header. In gzip files, the checksum is also verified. Memory use follows the file size, never the
// header. Reading stops one byte after the expected end.
Idx read_idx(const std::string& path);

}  // namespace godwit::data
