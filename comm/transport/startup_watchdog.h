// StartupWatchdog: terminates the process if other ranks fail to start in time; MPI_Init would block forever.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace godwit {

// If the object is not destroyed within `timeout`, its thread prints "rank r: not all ranks started within …" to stderr
// and exits the process with code 1. Ranks other than 0 wait 2 s longer, so that usually only rank 0 prints. The
// time in which the process is suspended does not count.
class StartupWatchdog {
 public:
  StartupWatchdog(int rank, std::chrono::milliseconds timeout);  // starts the timer
  ~StartupWatchdog();
  StartupWatchdog(const StartupWatchdog&) = delete;
  StartupWatchdog& operator=(const StartupWatchdog&) = delete;

 private:
  void watch(int rank, std::chrono::milliseconds timeout);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::thread thread_;
};

}  // namespace godwit
