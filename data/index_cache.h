// What is known of the files of a data folder, kept from run to run.
#pragma once
#include <string>
#include <vector>

#include "data/image_folder.h"

namespace godwit::data {

// Copies width, height, channels and problem of a kept file to each of `files` with the same path, size and time of
// change; returns the indices of the others. A cache that is missing, damaged or
// no regular file knows nothing.
std::vector<size_t> recall(const std::string& root, std::vector<ImageFile>& files);

// Writes root/.godwit-index, or else a file in $XDG_CACHE_HOME/godwit (~/.cache/godwit), whole or not at all. Files
// that could not be read are left out. Returns the path, "" when neither place can be written.
std::string remember(const std::string& root, const std::vector<ImageFile>& files);

}  // namespace godwit::data
