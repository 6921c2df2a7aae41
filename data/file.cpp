#include "data/file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/check.h"

namespace godwit::data {

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

}  // namespace godwit::data
