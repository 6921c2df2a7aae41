// ControlChannel: sends notices between the ranks of one run_mpi(): a rank failed, ended, is busy, requests a stop, or
// has printed the errors.
#pragma once
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace godwit {

// Thread-safe. A notice is a small message to every other rank. poll() receives the notices that have arrived. A
// malformed notice counts as a failure of its sender. poll() also detects processes of this host that have ended.
class ControlChannel {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ControlChannel(MPI_Comm world);  // collective
  void close();                      // collective; must be called after all ranks have finished and none has failed

  void poll();
  bool fail(const std::string& reason);   // announces that this rank failed; later calls do nothing, return false
  void finish();                          // announces that this rank's body has ended, with or without an error
  void busy();                            // announces that this rank is busy; must be repeated meanwhile
  void report();                          // announces that this process has printed the errors of the run
  // Implements RunControl::may_continue(); nullopt while undecided. A rank that requests a stop sends the number of
  // steps that it has begun. Every other rank answers with its number of steps when it polls. All ranks stop after the
  // largest number.
  std::optional<bool> may_continue(bool stop);
  bool stop_requested(bool stop);  // RunControl::stop_requested()
  void forget_stop();  // for continue_steps(); requires that all ranks have decided and none takes a step

  std::map<int, std::string> failures() const;  // known reasons of failures, by rank
  std::optional<int> failed_peer() const;       // the peer whose failure was received first
  std::optional<int> lost_peer() const;         // a peer on this host whose process ended without finish()
  std::optional<Clock::time_point> finished_at(int rank) const;
  // Time at which the last busy notice of another rank arrived, or at which this process continued after a suspension,
  // such as SIGSTOP or Ctrl-Z.
  Clock::time_point last_busy() const;
  std::vector<int> undecided() const;   // ranks whose number of steps is not known
  // The rank that reports all failures: the lowest finished rank with a failure of its own. If there is none, the
  // lowest finished rank.
  int reporter() const;
  bool all_finished() const;
  bool reported() const;  // whether a rank has printed the errors

 private:
  enum class Kind : int32_t { failed, finished, busy, steps, stop, reported };
  struct Notice {
    Kind kind;
    int32_t rank;
    int64_t steps;    // number of steps begun
    char text[2000];  // zero-terminated
  };
  void post();
  void send(Kind kind, const std::string& text = "");
  void send_steps();  // sends only once
  void receive(const MPI_Status& status, bool too_long);
  std::string defect(const Notice& notice, const MPI_Status& status) const;  // empty if valid
  void take(const Notice& notice);
  void check_processes();
  void notice_suspension();  // if this process was suspended, other ranks may have been too, so waits begin anew

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  mutable std::mutex mutex_;
  Notice incoming_;
  MPI_Request receiving_ = MPI_REQUEST_NULL;
  std::deque<Notice> outgoing_;
  std::vector<MPI_Request> sending_;
  std::map<int, std::string> failures_;
  std::optional<int> failed_peer_;
  std::vector<std::optional<Clock::time_point>> finished_;
  Clock::time_point last_busy_{}, polled_{}, processes_checked_{};
  std::map<int, Clock::time_point> dead_;      // peers whose process has ended, and when this was detected
  int64_t begun_ = 0;                          // number of steps that this rank has begun
  std::vector<std::optional<int64_t>> steps_;  // number of steps that each rank has answered
  bool stop_requested_ = false, reported_ = false;
};

}  // namespace godwit
