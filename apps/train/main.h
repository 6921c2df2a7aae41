// main() of a training program.
#pragma once
#include "apps/config/program.h"

namespace godwit::apps {

// Reads the command line and trains. Errors are reported as one line on stderr. Returns the exit code: 0 for success, 1
// for an error during the run, 2 for an invalid command line or configuration, 128 + the signal number for an
// interrupted run.
int run_program(const Program& program, int argc, char** argv);

}  // namespace godwit::apps
