// PeerProcesses: detects ended processes of other ranks on this host. Internal to the MPI transport.
#pragma once
#include <poll.h>
#include <sys/types.h>

#include <utility>
#include <vector>

namespace godwit {

// Not thread-safe.
class PeerProcesses {
 public:
  // Watches the given (rank, process) pairs, except processes that the system does not allow to watch.
  explicit PeerProcesses(const std::vector<std::pair<int, pid_t>>& processes);
  ~PeerProcesses();
  PeerProcesses(const PeerProcesses&) = delete;
  PeerProcesses& operator=(const PeerProcesses&) = delete;

  std::vector<int> ended();  // ranks whose process has ended, in ascending order; does not block

 private:
  std::vector<int> ranks_;
  std::vector<pollfd> descriptors_;  // of each rank's process
};

}  // namespace godwit
