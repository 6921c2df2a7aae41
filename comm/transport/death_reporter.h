// DeathReporter: prints a line if this process is killed or crashes. Internal to the MPI transport.
#pragma once
#include <mutex>
#include <string>
#include <string_view>

namespace godwit {

// Runs a child process (/bin/sh) that waits for the end of this process. If this process ends within a phase, the child
// prints "phase 'PHASE': WHO has ended; its process was killed or has crashed" to standard error. A signal to the
// process group ends both processes without a line. Prints nothing if the system does not allow a child process.
// Thread-safe.
class DeathReporter {
 public:
  explicit DeathReporter(const std::string& who);  // who: "rank 2 on a"
  ~DeathReporter();                                // leaves the phase
  DeathReporter(const DeathReporter&) = delete;
  DeathReporter& operator=(const DeathReporter&) = delete;

  void set_phase(std::string_view phase);  // uses the first 127 bytes; empty: leaves the phase

 private:
  std::mutex mutex_;
  char* phase_ = nullptr;  // memory that the child reads
  int alive_ = -1;         // end of a pipe; the child waits until the system closes it
};

}  // namespace godwit
