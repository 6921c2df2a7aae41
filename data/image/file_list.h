// Listing class folders.
#pragma once
#include <string>
#include <vector>

#include "data/image/image_folder.h"

namespace godwit::data {

// The names in a folder that do not begin with a dot, sorted by their bytes. Throws when it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

bool is_folder(const std::string& path);

// The folders in root/split, sorted: the classes.
std::vector<std::string> class_names(const std::string& root, const std::string& split);

// All files below root/split/<class>, nested ones too, sorted by path; with size and label.
std::vector<ImageFile> list_files(const std::string& root, const std::string& split,
                                  const std::vector<std::string>& classes);

}  // namespace godwit::data
