// Notices: how the ranks of one run_mpi() tell each other that they failed or ended.
#pragma once
#include <mpi.h>

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace godwit {

// Thread-safe. A notice is a small message to every other rank; poll() takes in those that have come.
class Notices {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Notices(MPI_Comm world);  // collective
  void close();                      // collective, when all have left and none has failed

  void poll();
  void fail(const std::string& reason);  // of this rank; what follows the first is ignored
  void leave();                          // this rank's body has ended, one way or the other

  std::map<int, std::string> failures() const;  // by rank, of what is known
  std::optional<int> failed_peer() const;       // the first that was heard of
  std::optional<Clock::time_point> left_at(int rank) const;
  int lowest_left() const;
  bool all_left() const;

 private:
  struct Notice {
    int rank;
    bool failed;
    char text[2000];
  };
  void post();
  void send(bool failed, const std::string& text);
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
  std::vector<std::optional<Clock::time_point>> left_;
};

}  // namespace godwit
