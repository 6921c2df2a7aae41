// The text of --help. Internal to apps/common.
#pragma once
#include <string>

namespace godwit::apps {

std::string help_text();  // at most 100 columns

}  // namespace godwit::apps
