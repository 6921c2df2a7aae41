// Lists class folders.
#pragma once
#include <string>
#include <vector>

#include "data/image/image_folder.h"

namespace godwit::data {

// The names in a folder, sorted by bytes, without names that begin with a dot. Throws if the folder cannot be read.
std::vector<std::string> names_in(const std::string& folder);

bool is_folder(const std::string& path);  // true for a folder, or a link to one

// The class names: the folders in root/split, sorted.
std::vector<std::string> class_names(const std::string& root, const std::string& split);

// All files below root/split/<class>, including nested folders, sorted by path, with size and label. Follows
// links, except links to a folder that contains the link.
std::vector<ImageFile> list_files(const std::string& root, const std::string& split,
                                  const std::vector<std::string>& classes);

}  // namespace godwit::data
