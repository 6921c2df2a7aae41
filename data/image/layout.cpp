#include "data/image/layout.h"

#include <cctype>
#include <filesystem>
#include <tuple>
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
constexpr const char* kOtherFolder =
    "; name another folder with --data, or install Fashion-MNIST (apt-get install dataset-fashion-mnist)";

bool ends_as_jpeg(const std::string& name) {
  if (name.starts_with('.')) return false;
  std::string ending = fs::path(name).extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".jpg" || ending == ".jpeg";
}

// Whether a folder in `folder` contains a file with a JPEG's name, at most kDepth folders below.
bool holds_class_folders(const std::string& folder) {
  constexpr int kDepth = 3;
  std::error_code ignored;  // a folder that cannot be read, such as lost+found
  for (const std::string& name : class_names(folder, ""))
    for (fs::recursive_directory_iterator
             at(folder + "/" + name, fs::directory_options::follow_directory_symlink, ignored),
         end;
         !ignored && at != end; at.increment(ignored)) {
      if (at.depth() == kDepth) at.disable_recursion_pending();
      if (ends_as_jpeg(at->path().filename().string())) return true;
    }
  return false;
}

// "; cat/1.png is no JPEG" if there are class folders without JPEGs, or "".
std::string other_images(const std::string& folder) {
  std::error_code ignored;
  for (const std::string& name : class_names(folder, ""))
    for (const fs::directory_entry& file : fs::directory_iterator(folder + "/" + name, ignored))
      if (const fs::path file_name = file.path().filename();
          file_name.string().front() != '.' && !file.is_directory(ignored))
        return "; " + (fs::path(name) / file_name).string() + " is no JPEG (*.jpg, *.jpeg)";
  return "";
}

// Throws for the Python version of CIFAR, whose files have the names of the binary version without ".bin".
void check_no_python_cifar(const std::string& folder) {
  const auto is_file = [&](const std::string& name) {
    std::error_code ignored;  // names_in() reports folders that cannot be read
    return fs::is_regular_file(fs::path(folder) / name, ignored);
  };
  const auto is_python = [&](const std::string& name, const std::string& description) {
    return is_file(name) && is_file(description) && !is_file(name + ".bin");
  };
  for (const auto& [name, description, classes] :
       {std::tuple{"data_batch_1", "batches.meta", "10"}, {"train", "meta", "100"}})
    check(!is_python(name, description), "data folder ", folder, ": ", name,
          " is not a file of the binary version of CIFAR-", classes, "; download cifar-", classes,
          "-binary.tar.gz instead of cifar-", classes, "-python.tar.gz");
}

}  // namespace

Layout layout_of(const std::string& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  check(status.type() != fs::file_type::not_found, "data folder ", folder, ": not found, ", kLookedFor, kOtherFolder);
  check(!error, "data folder ", folder, ": cannot be read (", error.message(), ")");
  check(fs::is_directory(status), "data folder ", folder, ": is a file, expected a folder");
  check_no_python_cifar(folder);
  const std::vector<std::string> names = names_in(folder);
  // The first name with one of these beginnings, or "".
  const auto first = [&](std::initializer_list<const char*> beginnings) -> std::string {
    for (const std::string& name : names)
      for (const char* beginning : beginnings)
        if (name.starts_with(beginning)) return name;
    return "";
  };
  const std::string idx = first({"train-images", "train-labels", "t10k-images", "t10k-labels"});
  const std::string cifar10 = first({"data_batch_", "test_batch.bin"}), cifar100 = first({"train.bin", "test.bin"});
  const bool has_train = is_folder(folder + "/train");
  const bool jpegs = holds_class_folders(has_train ? folder + "/train" : folder);
  std::vector<std::string> formats;
  for (const auto& [name, format] : {std::pair{idx, "IDX"}, {cifar10, "CIFAR-10"}, {cifar100, "CIFAR-100"}})
    if (!name.empty()) formats.push_back(name + " (" + format + ")");
  if (jpegs) formats.push_back("class folders (JPEGs)");
  check(formats.size() < 2, "data folder ", folder, ": has ", formats.empty() ? "" : formats.front(), " and ",
        formats.empty() ? "" : formats.back(), "; expected one dataset per folder");
  if (!idx.empty()) return Layout::idx;
  if (!cifar10.empty() || !cifar100.empty()) return Layout::cifar;
  if (jpegs || has_train) return Layout::image_folder;
  fail("data folder ", folder, ": contains no known dataset format; ", kLookedFor, other_images(folder), kOtherFolder);
}

}  // namespace godwit::data
