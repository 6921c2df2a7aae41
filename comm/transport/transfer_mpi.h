// Transfer: the messages of one collective, and the wait for them.
#pragma once
#include <mpi.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/collective_call.h"
#include "comm/transport/control_channel_mpi.h"

namespace godwit {

// What the groups of one run_mpi() share.
struct MpiWorld {
  MpiWorld(MPI_Comm comm, std::chrono::milliseconds patience) : notices(comm), timeout(patience) {}

  Notices notices;
  const std::chrono::milliseconds timeout;
  std::vector<MPI_Comm> comms;  // of the groups

  // After a failure messages may still come or go: their memory stays.
  void keep(std::shared_ptr<void> memory);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> kept_;
};

// One group's part in the transport.
struct MpiMembers {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;                  // within the group
  std::vector<int> world_ranks;  // of its members
  std::shared_ptr<MpiWorld> world;
};

class Transfer {
 public:
  // Tells every member what this rank calls. `memory` holds what send() and receive() point into.
  Transfer(const MpiMembers& members, const Call& call, std::vector<Tensor> memory);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Posts a message; both ends give equal bytes, and equal tags from 1 on.
  void send(int peer, const void* data, int64_t bytes, int tag);
  void receive(int peer, void* data, int64_t bytes, int tag);

  // Returns when all posted messages are through and every member has made the same call. The thread sleeps between
  // looks. Throws when members disagree, one failed or left, or nothing arrives before the timeout.
  void finish();

 private:
  struct Header;
  struct State;
  using Clock = std::chrono::steady_clock;

  Transfer(const MpiMembers& members, const Call& call);
  template <class F>
  void post(int peer, int64_t bytes, F&& message);
  bool advance();  // some messages got through
  void look_around(Clock::time_point last);
  [[noreturn]] void explain();
  std::vector<int> absentees(bool headers_only) const;  // world ranks, ascending
  [[noreturn]] void give_up(const std::string& reason) const;

  const MpiMembers& members_;
  Call call_;
  std::unique_ptr<State> state_;
};

}  // namespace godwit
