// What the data tests share: a scratch folder, IDX bytes, gzip.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace godwit::data {

// A fresh folder, removed with its content at the end of the scope.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string str() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

using Bytes = std::vector<uint8_t>;

Bytes idx_bytes(const std::vector<uint32_t>& extents, const Bytes& values);
Bytes gzip(const Bytes& bytes);
void write(const std::string& path, const Bytes& bytes);

// The message of the Error that f throws; fails the test when it throws none.
std::string error_of(const std::function<void()>& f);

}  // namespace godwit::data
