// Files of a run directory. They are written completely, or appended to.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace godwit::apps {

// Throws an Error that the file cannot be written, with the text of the errno value `error` and a remedy.
[[noreturn]] void fail_writing(const std::string& path, int error);

// Writes under a temporary name and renames the file, so that a reader sees either the old or the complete new file.
void write_whole(const std::string& path, const std::string& text);

// A file to append to. append() writes immediately and completely. On an error, it removes the partial data and throws.
class AppendedFile {
 public:
  AppendedFile(std::FILE* file, std::string path);  // takes ownership; the file position must be at the end
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  void append(std::string_view bytes);
  void sync();                            // syncs the file to disk
  int64_t size() const { return size_; }  // size in bytes

 private:
  std::string path_;
  std::FILE* file_;  // written through its descriptor, so there is no buffering
  int64_t size_;     // number of completely written bytes
};

}  // namespace godwit::apps
