// NcclWatchdog: a thread that aborts a rank's NCCL communicators when a collective fails or does not end.
#pragma once
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/group.h"
#include "engine/cuda/cuda_context.h"

namespace godwit {

// Each rank has one watchdog for all its groups. The groups' collectives are queued on streams, and no host thread
// waits for them. The watchdog polls the oldest collective. After an error of NCCL or CUDA, a failure of a rank, or a
// timeout, it sets AbortedWork and aborts all communicators of the rank, so that queued work ends. Later collectives of
// the rank, and waits of the host for its streams, then throw the reason. Thread-safe.
class NcclWatchdog {
 public:
  using Clock = std::chrono::steady_clock;

  // A communicator of a group. `comm` may be used only within call().
  struct Member {
    std::shared_ptr<Group> host;                                       // reports failed and busy ranks
    std::function<void(std::string_view phase, double seconds)> took;  // called when a collective has ended
    ncclComm_t comm = nullptr;                                         // null: not connected yet, or aborted
  };

  explicit NcclWatchdog(std::chrono::milliseconds timeout);  // starts the thread, for the calling thread's context
  ~NcclWatchdog();                                           // all members must have left
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  void join(Member& member);
  // Waits at most 10 s for the member's pending work, then frees the member's communicator.
  void leave(Member& member);

  // Calls f(), which calls NCCL functions that do not block. No other thread of the rank uses NCCL during the call.
  // Throws if the communicators were aborted. If f returns an error, throws an Error with the phase.
  template <class F>
  void call(const Member& member, std::string_view phase, F&& f) {
    const std::lock_guard lock(mutex_);
    aborted_->check();
    accept(f(), member.comm, phase);
  }
  // Watches a collective between two timed events of a stream.
  void watch(Member& member, std::string_view phase, CudaEvent begin, CudaEvent end);
  // Aborts the rank's communicators.
  void give_up(const std::string& reason);
  void check_aborted() const { aborted_->check(); }  // throws the reason after an abort
  // Throws if the timeout has elapsed since both `start` and the last busy moment of a rank.
  void check_time(const Member& member, Clock::time_point start, std::string_view phase) const;

 private:
  struct Collective {
    Member* member;
    std::string phase;
    CudaEvent begin, end;
    std::optional<Clock::time_point> begun;  // when a poll first found that `begin` is done
  };

  void run();
  void poll();
  void check_communicators();
  void abort(const std::string& reason);
  void accept(ncclResult_t result, ncclComm_t comm, std::string_view phase) const;

  const int rank_, gpu_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<AbortedWork> aborted_;
  std::mutex mutex_;  // protects the members below and all NCCL calls
  std::condition_variable changed_;
  std::vector<Member*> members_;
  std::deque<Collective> pending_;  // ordered by call
  bool closing_ = false;
  std::thread thread_;  // declared last, because the thread uses the other members
};

}  // namespace godwit
