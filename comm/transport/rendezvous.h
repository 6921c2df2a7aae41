// Rendezvous: synchronizes the threads of a local group in each collective, compares their calls and reports failures.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/collective_call.h"

namespace godwit {

// Counts the busy ranks of a run (RunControl::busy()). Thread-safe.
class BusyRanks {
 public:
  using Clock = std::chrono::steady_clock;  // clock of last()
  void begin() { ++count_; }                // a rank becomes busy
  void end() {  // a rank is no longer busy
    ended_ = Clock::now();
    --count_;
  }
  // The current time if a rank is busy, otherwise the time when the last busy rank ended.
  Clock::time_point last() const { return count_ > 0 ? Clock::now() : ended_.load(); }

 private:
  std::atomic<int> count_{0};
  std::atomic<Clock::time_point> ended_{};
};

// Members are numbered 0…size−1. Messages name their ranks in the world. Waiting threads sleep, because there may be
// more ranks than cores.
class Rendezvous {
 public:
  // world_ranks[i]: rank of member i in the world. timeout: maximum wait while no rank is busy.
  Rendezvous(std::vector<int> world_ranks, std::chrono::milliseconds timeout, const BusyRanks& busy);

  // Returns when all members have entered with the same call. Throws if a member failed, has ended, makes another call,
  // or does not enter within the timeout while no rank is busy. After that, the group is unusable: all calls of all
  // members throw.
  void enter(int member, const CollectiveCall& call);
  // Must be called after every collective except a barrier. Returns when all members have called leave(). After that,
  // members no longer access each other's memory, except for their GPU kernels, which may do so until `done`. Waits
  // without a timeout, because nothing between enter() and leave() blocks. Also waits after a failure, because a peer
  // may still read memory.
  void leave(int member, Event done);
  // The call of a member. Valid between enter() and leave().
  const CollectiveCall& call(int member) const { return calls_[static_cast<size_t>(member)]; }
  // The event of a member. Valid between leave() and the next enter().
  const Event& done(int member) const { return done_[static_cast<size_t>(member)]; }

  void check_failure(int member, std::string_view phase);  // throws after a fail()
  void fail(int world_rank, const std::string& reason);  // makes members that wait, or enter later, throw
  void retire(int world_rank);                           // the rank has ended and will not enter again

 private:
  std::string difference() const;  // difference between the members' calls; empty if all are equal
  void finish_meeting();
  std::string begin_message(int member, std::string_view phase) const;
  [[noreturn]] void give_up(int member, std::string_view phase, bool late);

  const std::vector<int> ranks_;
  const std::chrono::milliseconds timeout_;
  const BusyRanks& busy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<CollectiveCall> calls_;
  std::vector<Event> done_;
  std::vector<bool> here_;
  int entered_ = 0, left_ = 0;
  uint64_t meeting_ = 0, parting_ = 0;  // numbers of completed enter() and leave() rounds
  std::string failure_;                 // empty if no rank has failed
  std::optional<int> retired_;
};

}  // namespace godwit
