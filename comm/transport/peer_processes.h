// PeerProcesses: detects that processes of other ranks on this host have ended. Internal to the MPI transport.
#pragma once
#include <poll.h>
#include <sys/types.h>

#include <utility>
#include <vector>

namespace godwit {

// Not thread-safe.
class PeerProcesses {
 public:
  // Watches the given (rank, process) pairs. Processes that the system does not allow to watch are skipped.
  explicit PeerProcesses(const std::vector<std::pair<int, pid_t>>& processes);
  ~PeerProcesses();
  PeerProcesses(const PeerProcesses&) = delete;
  PeerProcesses& operator=(const PeerProcesses&) = delete;

  std::vector<int> ended();  // ranks whose process has ended, in ascending order; does not block

 private:
  std::vector<int> ranks_;
  std::vector<pollfd> descriptors_;  // descriptor of each rank's process
};

}  // namespace godwit
