// SIGINT (Ctrl-C), SIGTERM and SIGHUP: the first signal asks the run to stop and save; the second ends the process
// immediately. SIGUSR1 asks for a checkpoint.
#pragma once
#include <string>

namespace godwit::apps {

// Installs handlers. The first signal is recorded and prints its name and `asked` on stderr as one line ("SIGTERM:
// stops soon"). The second prints `ended` and ends the process with 128 + the signal number (130 for Ctrl-C), without
// running destructors. A SIGHUP after the first signal is ignored, because closing a terminal may send SIGHUP twice.
// Empty texts print nothing. SIGHUP stays ignored if it was ignored before (nohup). Calling again replaces the texts
// and clears the recorded signal.
void catch_interrupts(const std::string& asked, const std::string& ended);

void silence_interrupts();  // signals remain caught, but print nothing from now on

int interrupted();  // the recorded signal; 0 if none

// SIGUSR1 asks for a checkpoint. Its handler is that of catch_interrupts().
bool take_checkpoint_signal();  // whether a signal has come since the last call

}  // namespace godwit::apps
