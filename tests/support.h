// Shared test helpers: temporary folders, files of bytes, the message of an expected Error.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/check.h"

namespace godwit {

using Bytes = std::vector<uint8_t>;

// A new folder. It is deleted with its contents at the end of the scope.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "godwit-XXXXXX").string();
    check(mkdtemp(name.data()) != nullptr, "no temporary folder ", name);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string str() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// Creates missing parent folders.
inline void write(const std::string& path, const Bytes& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::filesystem::remove(path);  // some file systems need milliseconds to flush an overwritten file
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  check(file.flush().good(), "cannot write ", path);
}

inline Bytes read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  check(file.is_open(), "cannot read ", path);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

// The path of a file in the dataset folder (GODWIT_DATA, or shared/data next to the checkout); "" if the file does not
// exist.
inline std::string data_path(const std::string& name) {
  const char* folder = std::getenv("GODWIT_DATA");
  const std::string path =
      (folder ? std::string(folder) : std::string(GODWIT_SOURCE_DIR) + "/../shared/data") + "/" + name;
  return std::filesystem::exists(path) ? path : "";
}

// The message of the Error that f throws. Fails the test if f throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

}  // namespace godwit
