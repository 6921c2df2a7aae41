// StartWatch: ends a process whose fellow ranks do not start; MPI itself would wait for them for ever.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace godwit {

// Unless it is destroyed within `timeout`, prints "rank r: not all ranks started within …" on stderr and ends the
// process with exit code 1, from a thread of its own.
class StartWatch {
 public:
  StartWatch(int rank, std::chrono::milliseconds timeout);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void watch(int rank, std::chrono::milliseconds timeout);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::thread thread_;
};

}  // namespace godwit
