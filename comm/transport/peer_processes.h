// PeerProcesses: which processes of other ranks on this host have ended. Internal to the MPI transport.
#pragma once
#include <poll.h>
#include <sys/types.h>

#include <utility>
#include <vector>

namespace godwit {

// Not thread-safe.
class PeerProcesses {
 public:
  // The process of each rank to watch. A process that the system does not let this one watch is left out.
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
