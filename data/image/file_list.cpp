#include "data/image/file_list.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "engine/check.h"

namespace godwit::data {
namespace {

constexpr int kDeepest = 16;  // maximum nesting; symbolic links can form cycles

std::string below(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

struct Lister {
  const std::string& root;
  std::vector<ImageFile>& files;

  void add(const std::string& folder, int32_t label, int depth) {
    check(depth <= kDeepest, root, "/", folder, ": more than ", kDeepest, " folders deep (cyclic links?)");
    for (const std::string& name : names_in(root + "/" + folder)) {
      ImageFile file;
      file.path = folder + "/" + name;
      file.label = label;
      struct stat status;
      if (stat((root + "/" + file.path).c_str(), &status) != 0) {
        file.problem = std::string("cannot be read (") + std::strerror(errno) + ")";
      } else if (S_ISDIR(status.st_mode)) {
        add(file.path, label, depth + 1);
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
  std::erase_if(names, [&](const std::string& name) { return !is_folder(root + "/" + below(split, name)); });
  return names;
}

std::vector<ImageFile> list_files(const std::string& root, const std::string& split,
                                  const std::vector<std::string>& classes) {
  std::vector<ImageFile> files;
  for (size_t label = 0; label < classes.size(); ++label)
    Lister{root, files}.add(below(split, classes[label]), static_cast<int32_t>(label), 1);
  return files;
}

}  // namespace godwit::data
