// ControlChannel: how the ranks of one run_mpi() tell each other that they failed or ended, are busy, or want to stop.
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

// Thread-safe. A notice is a small message to every other rank; poll() takes in those that have come. A notice that is
// malformed counts as a failure of the rank that sent it.
class ControlChannel {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ControlChannel(MPI_Comm world);  // collective
  void close();                      // collective, when all have left and none has failed

  void poll();
  void fail(const std::string& reason);  // of this rank; what follows the first is ignored
  void finish();                          // this rank's body has ended, one way or the other
  void busy();                           // this rank works alone; to be repeated meanwhile
  // Group::may_continue(); nothing while it is not decided. A rank that wants to stop sends the number of steps it has
  // begun, which every other rank answers with its own, at once, wherever it polls. All stop after the largest number.
  std::optional<bool> may_continue(bool stop);
  void forget_stop();  // Group::continue_steps(); when all ranks have decided, and none takes steps yet

  std::map<int, std::string> failures() const;  // by rank, of what is known
  std::optional<int> failed_peer() const;       // the first that was heard of
  std::optional<Clock::time_point> finished_at(int rank) const;
  Clock::time_point last_busy() const;  // when the latest such notice of another rank came
  std::vector<int> undecided() const;   // the ranks whose number of steps is not known
  int lowest_finished() const;
  bool all_finished() const;

 private:
  enum class Kind : int32_t { failed, finished, busy, steps };
  struct Notice {
    Kind kind;
    int32_t rank;
    int64_t steps;    // begun
    char text[2000];  // ends in a zero
  };
  void post();
  void send(Kind kind, const std::string& text = "");
  void send_steps();  // once
  void receive(const MPI_Status& status, bool too_long);
  std::string defect(const Notice& notice, const MPI_Status& status) const;  // empty: none
  void take(const Notice& notice);

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
  Clock::time_point last_busy_{};
  int64_t begun_ = 0;                          // steps of this rank
  std::vector<std::optional<int64_t>> steps_;  // of each rank, as it answered
};

}  // namespace godwit
