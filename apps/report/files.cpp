#include "apps/report/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/check.h"

namespace godwit::apps {

void fail_writing(const std::string& path, int error) {
  fail(path, ": cannot be written (", std::strerror(error), "); ", error == ENOSPC ? "free space there or " : "",
       "choose another --run-dir");
}

void write_whole(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (!file) fail_writing(temporary, errno);
  int error = 0;  // of the first failed call
  auto note = [&](bool good) {
    if (!good && error == 0) error = errno;
  };
  note(std::fwrite(text.data(), 1, text.size(), file) == text.size());
  note(std::fflush(file) == 0);
  note(::fsync(::fileno(file)) == 0);
  note(std::fclose(file) == 0);
  if (error == 0) note(std::rename(temporary.c_str(), path.c_str()) == 0);
  if (error == 0) return;
  std::remove(temporary.c_str());
  fail_writing(path, error);
}

AppendedFile::AppendedFile(std::FILE* file, std::string path) : path_(std::move(path)), file_(file) {
  struct stat now {};
  size_ = ::fstat(::fileno(file), &now) == 0 ? now.st_size : 0;
}

AppendedFile::~AppendedFile() { std::fclose(file_); }

void AppendedFile::append(std::string_view bytes) {
  const int descriptor = ::fileno(file_);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t put = ::write(descriptor, bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int error = errno;
      if (::ftruncate(descriptor, size_) == 0) ::lseek(descriptor, size_, SEEK_SET);
      fail_writing(path_, error);
    }
    done += static_cast<size_t>(put);
  }
  size_ += std::ssize(bytes);
}

void AppendedFile::sync() {
  if (::fsync(::fileno(file_)) != 0 && errno != EINVAL) fail_writing(path_, errno);
}

}  // namespace godwit::apps
