// Which kind of data set a folder holds, told by its content.
#pragma once
#include <string>

namespace godwit::data {

enum class Layout { idx, cifar, image_folder };

// Throws one Error that lists what was looked for when nothing fits, when there is no such folder, or when it cannot
// be read.
Layout layout_of(const std::string& folder);

}  // namespace godwit::data
