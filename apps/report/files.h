// Files of a run directory: written whole, or appended to.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace godwit::apps {

// Throws an Error: the file cannot be written, with the text of the errno value `error` and a remedy.
[[noreturn]] void fail_writing(const std::string& path, int error);

// Writes under a temporary name and renames, so that a reader sees either the old or the complete new file.
void write_whole(const std::string& path, const std::string& text);

// A file to append to. append() writes at once and completely; on an error it removes the partial data and throws.
class AppendedFile {
 public:
  AppendedFile(std::FILE* file, std::string path);  // closes it at the end; positioned at the end of its content
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  void append(std::string_view bytes);
  void sync();                            // writes to the disk
  int64_t size() const { return size_; }  // bytes

 private:
  std::string path_;
  std::FILE* file_;  // written through its descriptor, so nothing is buffered
  int64_t size_;     // bytes that were written completely
};

}  // namespace godwit::apps
