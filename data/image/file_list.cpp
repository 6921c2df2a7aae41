#include "data/image/file_list.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "data/file.h"
#include "engine/check.h"

namespace godwit::data {
namespace {

std::string below(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

// Whether all entries of a folder, such as "runs", are folders of training runs.
bool has_only_runs(const std::string& folder) {
  std::error_code error;
  bool found = false;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with('.')) continue;
    if (!is_run_folder(at->path().string())) return false;
    found = true;
  }
  return found;
}

struct Lister {
  const std::string& root;
  std::vector<ImageFile>& files;

  // `parents`: the folders that contain this one, as paths without links. A link to one of them is left out.
  void add(const std::string& folder, int32_t label, std::vector<std::filesystem::path> parents) {
    std::error_code ignored;
    const std::filesystem::path own = std::filesystem::canonical(root + "/" + folder, ignored);
    if (std::ranges::find(parents, own) != parents.end()) return;
    parents.push_back(own);
    for (const std::string& name : names_in(root + "/" + folder)) {
      ImageFile file;
      file.path = folder + "/" + name;
      file.label = label;
      struct stat status;
      if (stat((root + "/" + file.path).c_str(), &status) != 0) {
        file.problem = std::string("cannot be read (") + std::strerror(errno) + ")";
      } else if (S_ISDIR(status.st_mode)) {
        if (!is_run_folder(root + "/" + file.path)) add(file.path, label, parents);
        continue;
      } else if (!S_ISREG(status.st_mode)) {
        file.problem = "is not a regular file";
      } else {
        file.bytes = status.st_size;
      }
      files.push_back(std::move(file));
    }
  }
};

}  // namespace

std::vector<std::string> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(folder.c_str()), closedir);
  check(stream != nullptr, "data folder ", folder, ": cannot be read (", std::strerror(errno), ")");
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (!entry) break;
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  check(errno == 0, "data folder ", folder, ": cannot be read (", std::strerror(errno), ")");
  std::sort(names.begin(), names.end());
  return names;
}

bool is_folder(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::vector<std::string> class_names(const std::string& root, const std::string& split) {
  std::vector<std::string> names = names_in(split.empty() ? root : root + "/" + split);
  std::erase_if(names, [&](const std::string& name) {
    const std::string folder = root + "/" + below(split, name);
    return !is_folder(folder) || is_run_folder(folder) || has_only_runs(folder);
  });
  return names;
}

std::vector<ImageFile> list_files(const std::string& root, const std::string& split,
                                  const std::vector<std::string>& classes) {
  std::error_code ignored;
  std::vector<std::filesystem::path> parents;
  for (std::filesystem::path at = std::filesystem::canonical(below(root, split), ignored);
       parents.empty() || at != parents.back(); at = at.parent_path())
    parents.push_back(at);
  std::vector<ImageFile> files;
  for (size_t label = 0; label < classes.size(); ++label)
    Lister{root, files}.add(below(split, classes[label]), static_cast<int32_t>(label), parents);
  return files;
}

}  // namespace godwit::data
