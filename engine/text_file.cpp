#include "engine/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/check.h"
#include "engine/excerpt.h"

namespace godwit {

std::string read_text_file(const std::string& path, int64_t mib, const std::string& hint) {
  const std::string name = printable(path);
  std::error_code ignored;
  check(!std::filesystem::is_directory(path, ignored), name, ": is a folder", hint);
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  check(in.is_open(), name, ": cannot be read (", std::strerror(errno), ")", hint);
  std::string text, block(1 << 16, '\0');
  do {
    in.read(block.data(), std::ssize(block));
    text.append(block, 0, static_cast<size_t>(in.gcount()));
    check(std::ssize(text) <= mib << 20, name, ": is longer than ", mib, " MiB", hint);
  } while (in);
  check(!in.bad(), name, ": cannot be read to its end", hint);
  return text;
}

void write_text_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  errno = 0;
  std::ofstream out(temporary, std::ios::binary);
  out << text;
  out.close();
  bool written = out.good();
  // Without fsync, the renamed file may be empty after a crash of the system.
  if (const int descriptor = written ? ::open(temporary.c_str(), O_RDONLY | O_CLOEXEC) : -1; descriptor >= 0) {
    written = ::fsync(descriptor) == 0 || errno == EINVAL;  // EINVAL: some file systems cannot sync
    ::close(descriptor);
  }
  written = written && std::rename(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  if (!written) std::remove(temporary.c_str());
  check(written, path, ": cannot be written: ", std::strerror(error));
}

}  // namespace godwit
