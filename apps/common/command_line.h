// The command line of a training program: flags, --set and a JSON file become a TrainConfig.
#pragma once
#include <optional>
#include <ostream>

#include "apps/common/config.h"

namespace godwit::apps {

// Layers, later ones win: defaults of the program, defaults of the chosen optimizer, --config FILE, flags and --set in
// the order given. A FILE's optimizer block (with its exchange) and schedule block are left out when the command line
// chooses another optimizer or schedule. Returns nothing when --help or --print-config was answered on `out`.
// Throws Error, one line, for everything that is wrong.
std::optional<TrainConfig> parse_command_line(int argc, const char* const* argv, std::ostream& out);

}  // namespace godwit::apps
