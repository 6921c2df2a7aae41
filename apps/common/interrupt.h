// Ctrl-C and SIGTERM: the first asks a run to save what it has and to stop, the next one ends the process at once.
#pragma once
#include <string>

namespace godwit::apps {

// From now on the first SIGINT or SIGTERM prints `asked` on stderr as one line and is remembered. The next one prints
// `ended` and ends the process with 128 + the signal's number (130 for Ctrl-C), without running destructors. An empty
// text prints nothing. A later call replaces the texts and forgets what came.
void catch_interrupts(const std::string& asked, const std::string& ended);

int interrupted();  // the signal that came, 0: none

}  // namespace godwit::apps
