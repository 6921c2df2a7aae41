#include "data/image/layout.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <vector>

#include "data/image/file_list.h"
#include "engine/check.h"

namespace godwit::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLookedFor =
    "looked for train-images-idx3-ubyte[.gz] and its three companions (MNIST, Fashion-MNIST), data_batch_1.bin and "
    "test_batch.bin (CIFAR-10 binary), train.bin and test.bin (CIFAR-100 binary), "
    "train/<class>/*.jpg, or <class>/*.jpg";
constexpr const char* kRemedy =
    "; name another folder with --data, or install Fashion-MNIST (apt-get install dataset-fashion-mnist)";

bool starts(const std::string& name, std::initializer_list<const char*> beginnings) {
  for (const char* beginning : beginnings)
    if (name.starts_with(beginning)) return true;
  return false;
}

bool ends_as_jpeg(const std::string& name) {
  std::string ending = fs::path(name).extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".jpg" || ending == ".jpeg";
}

// Whether a folder in `folder` contains a file with a JPEG's name.
bool holds_class_folders(const std::string& folder) {
  for (const std::string& name : class_names(folder, ""))
    for (const std::string& file : names_in(folder + "/" + name))
      if (ends_as_jpeg(file)) return true;
  return false;
}

}  // namespace

Layout layout_of(const std::string& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  check(status.type() != fs::file_type::not_found, "data folder ", folder, ": not found, ", kLookedFor, kRemedy);
  check(!error, "data folder ", folder, ": cannot be read (", error.message(), ")");
  check(fs::is_directory(status), "data folder ", folder, ": is a file, expected a folder");
  const std::vector<std::string> names = names_in(folder);
  const auto any = [&](std::initializer_list<const char*> beginnings) {
    return std::ranges::any_of(names, [&](const std::string& name) { return starts(name, beginnings); });
  };
  if (any({"train-images", "train-labels", "t10k-images", "t10k-labels"})) return Layout::idx;
  if (any({"data_batch_", "test_batch.bin", "train.bin", "test.bin"})) return Layout::cifar;
  if (is_folder(folder + "/train") || holds_class_folders(folder)) return Layout::image_folder;
  fail("data folder ", folder, ": contains no known dataset format; ", kLookedFor, kRemedy);
}

}  // namespace godwit::data
