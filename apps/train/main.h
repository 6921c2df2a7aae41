// main() of a training program.
#pragma once
#include "apps/config/program.h"

namespace godwit::apps {

// Reads the command line and trains; reports what goes wrong as one line on stderr. Returns the exit code: 0 done, 1
// failed while running, 2 wrong command line or configuration.
int run_program(const Program& program, int argc, char** argv);

}  // namespace godwit::apps
