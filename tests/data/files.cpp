#include "tests/data/files.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <fstream>

#include "engine/check.h"

namespace godwit::data {

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "godwit-data-XXXXXX").string();
  check(mkdtemp(name.data()) != nullptr, "no temporary folder ", name);
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

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

void write(const std::string& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  check(file.flush().good(), "cannot write ", path);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

}  // namespace godwit::data
