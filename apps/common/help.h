// The text of --help. Internal to apps/common.
#pragma once
#include <string>

#include "apps/common/program.h"

namespace godwit::apps {

std::string help_text(const Program& program);  // at most 100 columns

}  // namespace godwit::apps
