// The command line of a training program: converts flags, --set and a JSON file to a configuration.
#pragma once
#include <ostream>

#include "apps/config/program.h"

namespace godwit::apps {

// Applies these layers in order; later ones have priority: defaults of the program, defaults of the chosen optimizer,
// --config FILE, flags and --set in the given order. If the command line chooses another optimizer or schedule, the
// file's optimizer block (with its exchange) or schedule block is omitted. Returns null after printing the answer to
// --help, --version or --print-config to `out`. Throws an Error with a one-line message for any invalid input.
// With --resume auto, throws CheckpointFailed if FILE exists but cannot be read.
ConfigPtr parse_command_line(const Program& program, int argc, const char* const* argv, std::ostream& out);

}  // namespace godwit::apps
