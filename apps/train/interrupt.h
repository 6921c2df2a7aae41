// Handles SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGUSR2. The first signal requests that the run stops and saves. A
// second signal, at least one second later, ends the process immediately. SIGUSR1 requests a checkpoint.
#pragma once
#include <string>

namespace godwit::apps {

// Starts a thread that alone handles these signals. Blocks them in the calling thread and in all threads that it starts
// later. Call it before other threads exist. Threads that compute must run no signal handler: some matrix products of
// oneDNN move the stack pointer into the heap, and a handler would overwrite the memory below it.
void handle_signals_in_thread();

// Installs handlers. The first signal is recorded; its name and `asked` are printed to stderr as one line ("SIGTERM:
// stops soon"). The second signal prints `ended` and ends the process with 128 + the signal number (130 for Ctrl-C),
// without running destructors. Empty texts print nothing. Another call replaces the texts and clears the recorded
// signal.
//
// These signals are ignored:
// - signals within one second of the first, because batch systems and terminals send several signals at once;
// - a SIGHUP after the first signal, because closing a terminal may send SIGHUP twice;
// - a SIGUSR2 after the first signal, because launchers pass SIGUSR2 on to every process;
// - SIGHUP, if it was ignored before (nohup).
void catch_interrupts(const std::string& asked, const std::string& ended);

void silence_interrupts();  // signals remain caught, but no longer print anything

int interrupted();  // the recorded signal; SIGTERM for SIGUSR2; 0 if there is none

// SIGUSR1 requests a checkpoint, also before the first step.
void catch_checkpoint_signal();
bool take_checkpoint_signal();  // whether a signal has arrived since the last call

}  // namespace godwit::apps
