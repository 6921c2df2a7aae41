// SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGUSR2: the first signal asks the run to stop and save; a second one, at
// least one second later, ends the process immediately. SIGUSR1 asks for a checkpoint.
#pragma once
#include <string>

namespace godwit::apps {

// Starts a thread that alone handles these signals, and blocks them in the calling thread and in the threads that it
// starts from now on. Call it before other threads exist. Threads that compute must run no signal handler: some matrix
// products of oneDNN move the stack pointer into the heap, and a handler would overwrite the memory below it.
void handle_signals_in_thread();

// Installs handlers. The first signal is recorded and prints its name and `asked` on stderr as one line ("SIGTERM:
// stops soon"). The second prints `ended` and ends the process with 128 + the signal number (130 for Ctrl-C), without
// running destructors. Signals within one second of the first are ignored, because batch systems and terminals send
// several signals at once. A SIGHUP after the first signal is ignored, because closing a terminal may send SIGHUP
// twice, and so is a SIGUSR2, which launchers pass on to every process. Empty texts print nothing. SIGHUP stays ignored
// if it was ignored before (nohup). Calling again replaces the texts and clears the recorded signal.
void catch_interrupts(const std::string& asked, const std::string& ended);

void silence_interrupts();  // signals remain caught, but print nothing from now on

int interrupted();  // the recorded signal, SIGTERM for SIGUSR2; 0 if none

// SIGUSR1 asks for a checkpoint, also before the first step.
void catch_checkpoint_signal();
bool take_checkpoint_signal();  // whether a signal has come since the last call

}  // namespace godwit::apps
