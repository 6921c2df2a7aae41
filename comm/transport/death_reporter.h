// DeathReporter: prints a line if this process is killed or crashes. Internal to the MPI transport.
#pragma once
#include <mutex>
#include <string>
#include <string_view>

namespace godwit {

// Runs a child process (/bin/sh) that waits for the end of this one. If this process is then in a phase, the child
// prints "phase 'PHASE': WHO has ended; its process was killed or has crashed" to the standard error. A signal to the
// process group ends both without a line. Prints nothing where the system allows no child. Thread-safe.
class DeathReporter {
 public:
  explicit DeathReporter(const std::string& who);  // "rank 2 on a"
  ~DeathReporter();                                // leaves the phase
  DeathReporter(const DeathReporter&) = delete;
  DeathReporter& operator=(const DeathReporter&) = delete;

  void set_phase(std::string_view phase);  // its first 127 bytes; empty: leaves the phase

 private:
  std::mutex mutex_;
  char* phase_ = nullptr;  // memory that the child reads
  int alive_ = -1;         // the child waits until the system closes this end of a pipe
};

}  // namespace godwit
