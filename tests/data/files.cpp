#include "tests/data/files.h"

#include <zlib.h>

namespace godwit::data {

Bytes idx_bytes(const std::vector<uint32_t>& extents, const Bytes& values) {
  Bytes bytes{0, 0, 8, static_cast<uint8_t>(extents.size())};
  for (uint32_t extent : extents)
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(extent >> shift));
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

Bytes gzip(const Bytes& bytes) {
  z_stream stream{};
  check(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "deflate");
  Bytes packed(deflateBound(&stream, static_cast<uLong>(bytes.size())) + 64);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  check(result == Z_STREAM_END, "deflate");
  return packed;
}

}  // namespace godwit::data
