#include "comm/transport/peer_processes.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace godwit {

PeerProcesses::PeerProcesses(const std::vector<std::pair<int, pid_t>>& processes) {
  for (const auto& [rank, process] : processes) {
    const long descriptor = ::syscall(SYS_pidfd_open, process, 0);  // readable once the process has ended
    if (descriptor < 0) continue;
    ranks_.push_back(rank);
    descriptors_.push_back({static_cast<int>(descriptor), POLLIN, 0});
  }
}

PeerProcesses::~PeerProcesses() {
  for (const pollfd& descriptor : descriptors_) ::close(descriptor.fd);
}

std::vector<int> PeerProcesses::ended() {
  std::vector<int> ranks;
  if (::poll(descriptors_.data(), descriptors_.size(), 0) <= 0) return ranks;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (descriptors_[i].revents & POLLIN) ranks.push_back(ranks_[i]);
  return ranks;
}

}  // namespace godwit
