// The text of --help. Internal to apps/config.
#pragma once
#include <string>

#include "apps/config/program.h"

namespace godwit::apps {

std::string help_text(const Program& program);  // at most 100 columns

}  // namespace godwit::apps
