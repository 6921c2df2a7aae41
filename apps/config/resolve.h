// From assignments to a configuration: layers, and the checks that need more than one setting. Internal to apps/config.
#pragma once
#include <vector>

#include "apps/config/program.h"

namespace godwit::apps {

// `file` first, `command` over it, each in order; see parse_command_line for the rule of optimizer and schedule blocks.
ConfigPtr resolve(const Program& program, const std::vector<Assignment>& file, const std::vector<Assignment>& command);

}  // namespace godwit::apps
