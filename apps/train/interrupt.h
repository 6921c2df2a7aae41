// SIGINT (Ctrl-C), SIGTERM and SIGHUP: the first asks a run to stop and to save what it has, the next one ends the
// process at once.
#pragma once
#include <string>

namespace godwit::apps {

// From now on the first of these signals prints its name and `asked` on stderr as one line ("SIGTERM: stops soon") and
// is remembered. The next one prints `ended` and ends the process with 128 + the signal's number (130 for Ctrl-C),
// without running destructors; but a terminal that is closed may send SIGHUP twice, so a later SIGHUP does nothing. An
// empty text prints nothing. SIGHUP stays ignored where it was (nohup). A later call replaces the texts and forgets
// what came.
void catch_interrupts(const std::string& asked, const std::string& ended);

void silence_interrupts();  // signals stay caught, but print nothing from now on

int interrupted();  // the signal that came, 0: none

}  // namespace godwit::apps
