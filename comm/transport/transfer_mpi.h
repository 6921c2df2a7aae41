// Transfer: sends, receives and completes the messages of one collective.
#pragma once
#include <mpi.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/collective_call.h"
#include "comm/transport/control_channel_mpi.h"

namespace godwit {

// Shared by the groups of one run_mpi().
struct MpiWorld {
  MpiWorld(MPI_Comm comm, std::chrono::milliseconds patience) : control(comm), timeout(patience) {}

  ControlChannel control;
  const std::chrono::milliseconds timeout;
  std::vector<MPI_Comm> comms;  // of the groups

  // Keeps message buffers alive after a failure, since MPI may still read or write them. Thread-safe.
  void keep(std::shared_ptr<void> memory);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> kept_;
};

// The members of one group.
struct MpiMembers {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;                  // within the group
  std::vector<int> world_ranks;  // of the members
  std::shared_ptr<MpiWorld> world;
};

// One thread uses a Transfer.
class Transfer {
 public:
  // Sends `call` to every member. `memory` holds the buffers of send() and receive().
  Transfer(const MpiMembers& members, const CollectiveCall& call, std::vector<Tensor> memory);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Posts a nonblocking message. Both ends must pass the same size and tag (1 or larger).
  void send(int peer, const void* data, int64_t bytes, int tag);
  void receive(int peer, void* data, int64_t bytes, int tag);

  // Blocks until all messages have completed and every member has made the same call; polls, sleeping in between.
  // Throws if members call different collectives, if one failed or left, or if nothing arrives before the timeout.
  void finish();

 private:
  struct Header;
  struct State;
  using Clock = std::chrono::steady_clock;

  Transfer(const MpiMembers& members, const CollectiveCall& call);
  template <class F>
  void post(int peer, int64_t bytes, F&& message);
  bool advance();  // polls once; true if a message completed
  void look_around(Clock::time_point last);
  [[noreturn]] void explain();
  std::vector<int> absentees(bool headers_only) const;  // world ranks with pending messages, ascending
  [[noreturn]] void give_up(const std::string& reason) const;

  const MpiMembers& members_;
  CollectiveCall call_;
  std::unique_ptr<State> state_;
};

}  // namespace godwit
