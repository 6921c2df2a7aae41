// Detects the dataset format of a folder from its contents.
#pragma once
#include <string>

namespace godwit::data {

enum class Layout { idx, cifar, image_folder };  // formats of image datasets

// The format of a folder. Throws one Error that lists the expected files if no format matches, or if the folder is
// missing or unreadable. Also throws if two formats match.
Layout layout_of(const std::string& folder);

}  // namespace godwit::data
