// Lists class folders.
#pragma once
#include <string>
#include <vector>

#include "data/image/image_folder.h"

namespace godwit::data {

// The names in a folder, sorted by bytes. Names that begin with a dot are omitted. Throws if the folder cannot be read.
std::vector<std::string> names_in(const std::string& folder);

bool is_folder(const std::string& path);  // true for a folder and for a link to a folder

// The class names, sorted: the names of the folders in root/split, without folders of training runs.
std::vector<std::string> class_names(const std::string& root, const std::string& split);

// All files below root/split/<class>, including nested folders, sorted by path, with size and label. Links are
// followed, except links to a folder that contains the link. Folders of training runs are omitted.
std::vector<ImageFile> list_files(const std::string& root, const std::string& split,
                                  const std::vector<std::string>& classes);

}  // namespace godwit::data
