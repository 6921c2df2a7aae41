#include "data/layout.h"

#include <filesystem>
#include <vector>

#include "engine/check.h"

namespace godwit::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLookedFor =
    "looked for train-images-idx3-ubyte[.gz] and its three companions (MNIST, Fashion-MNIST), data_batch_1.bin and "
    "test_batch.bin (CIFAR-10 binary), train.bin and test.bin (CIFAR-100 binary)";
constexpr const char* kRemedy =
    "; name another folder with --data, or install Fashion-MNIST (apt-get install dataset-fashion-mnist)";

bool starts(const std::string& name, std::initializer_list<const char*> beginnings) {
  for (const char* beginning : beginnings)
    if (name.starts_with(beginning)) return true;
  return false;
}

}  // namespace

Layout layout_of(const std::string& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  check(status.type() != fs::file_type::not_found, "data folder ", folder, ": not found, ", kLookedFor, kRemedy);
  check(!error, "data folder ", folder, ": cannot be read (", error.message(), ")");
  check(fs::is_directory(status), "data folder ", folder, ": is a file, expected a folder");
  fs::directory_iterator entries(folder, error);
  check(!error, "data folder ", folder, ": cannot be read (", error.message(), ")");
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    check(!error, "data folder ", folder, ": cannot be read (", error.message(), ")");
    const std::string name = entries->path().filename().string();
    if (starts(name, {"train-images", "train-labels", "t10k-images", "t10k-labels"})) return Layout::idx;
    if (starts(name, {"data_batch_", "test_batch.bin", "train.bin", "test.bin"})) return Layout::cifar;
  }
  fail("data folder ", folder, ": no known data set is there; ", kLookedFor, kRemedy);
}

}  // namespace godwit::data
