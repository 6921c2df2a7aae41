// Rendezvous: where the threads of a local group meet, show each other what they call, and learn of failures.
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

// Whether ranks of a run are busy (Group::busy). Thread-safe.
class BusyRanks {
 public:
  using Clock = std::chrono::steady_clock;  // clock of last()
  void begin() { ++count_; }                // a rank becomes busy
  void end() {  // it is no longer busy
    ended_ = Clock::now();
    --count_;
  }
  // Now if a rank is busy, otherwise when the last one ended.
  Clock::time_point last() const { return count_ > 0 ? Clock::now() : ended_.load(); }

 private:
  std::atomic<int> count_{0};
  std::atomic<Clock::time_point> ended_{};
};

// Members are numbered 0…size−1; messages name their ranks in the world. Waits sleep: there may be more ranks than
// cores.
class Rendezvous {
 public:
  // Rank of each member in the world; longest wait without a busy rank.
  Rendezvous(std::vector<int> world_ranks, std::chrono::milliseconds timeout, const BusyRanks& busy);

  // Returns when all members have entered with the same call. Throws when a member failed, has ended, asks for
  // something else or stays away for the timeout while no rank is busy; after that the group is unusable and
  // everybody throws.
  void enter(int member, const CollectiveCall& call);
  // After every call but a barrier: returns when all members are here, that is, done with each other's memory. Nothing
  // blocks between the two, so it needs no timeout, and a failure elsewhere cannot free memory a peer still reads.
  // On a GPU a member is done after `done`.
  void leave(int member, Event done);
  // Between enter() and leave().
  const CollectiveCall& call(int member) const { return calls_[static_cast<size_t>(member)]; }
  // Between leave() and the next enter().
  const Event& done(int member) const { return done_[static_cast<size_t>(member)]; }

  void check_failure(int member, std::string_view phase);  // throws after a fail()
  void fail(int world_rank, const std::string& reason);  // everybody who waits or comes throws
  void retire(int world_rank);                           // it ended and will not come again

 private:
  std::string difference() const;  // between the members' calls; empty when there is none
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
  uint64_t meeting_ = 0, parting_ = 0;  // completed so far
  std::string failure_;                 // empty: none
  std::optional<int> retired_;
};

}  // namespace godwit
