// IDX files (MNIST, Fashion-MNIST): big-endian header, then unsigned bytes; plain or gzip, told apart by content.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace godwit::data {

struct Idx {
  std::vector<int64_t> extents;  // as in the file, first extent outermost
  std::vector<uint8_t> values;   // row-major, as many as the extents multiply to
};

// Throws one Error naming the file when it cannot be read, is not IDX of unsigned bytes, or is not exactly as long as
// its header says (also inside gzip, whose checksum is verified). Memory grows with the file, never with a header's
// claim, and of a file longer than that no more is read than shows it.
Idx read_idx(const std::string& path);

}  // namespace godwit::data
