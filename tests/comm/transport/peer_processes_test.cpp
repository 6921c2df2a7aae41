#include "comm/transport/peer_processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace godwit {
namespace peer_processes_test {

TEST(PeerProcesses, ProcessesThatHaveEndedAreNamed) {
  std::vector<std::pair<int, pid_t>> children;
  for (const int rank : {1, 4, 6}) {
    const pid_t child = fork();
    if (child == 0)
      for (;;) pause();
    children.emplace_back(rank, child);
  }
  PeerProcesses peers(children);
  EXPECT_EQ(peers.ended(), std::vector<int>{});
  for (const size_t i : {2, 0}) kill(children[i].second, SIGKILL);
  const std::vector<int> expected{1, 6};
  for (int i = 0; i < 5000 && peers.ended() != expected; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(peers.ended(), expected) << "their parent has not waited for them yet";
  kill(children[1].second, SIGKILL);
  for (const auto& [rank, child] : children) waitpid(child, nullptr, 0);
  EXPECT_EQ(peers.ended(), (std::vector<int>{1, 4, 6}));
  EXPECT_EQ(PeerProcesses({{2, children[0].second}}).ended(), std::vector<int>{}) << "there is no such process";
}

}  // namespace peer_processes_test
}  // namespace godwit
