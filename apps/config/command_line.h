// The command line of a training program: flags, --set and a JSON file become a configuration.
#pragma once
#include <ostream>

#include "apps/config/program.h"

namespace godwit::apps {

// Layers, later ones win: defaults of the program, defaults of the chosen optimizer, --config FILE, flags and --set in
// the order given. A FILE's optimizer block (with its exchange) and schedule block are left out when the command line
// chooses another optimizer or schedule. Returns null when --help, --version or --print-config was answered on `out`.
// Throws Error, one line, for everything that is wrong.
ConfigPtr parse_command_line(const Program& program, int argc, const char* const* argv, std::ostream& out);

}  // namespace godwit::apps
