// Stream: work done in order on a thread of its own, beside the thread that asks for it.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/context.h"
#include "engine/event.h"

namespace godwit {

// The thread takes on the maker's context (rank, threads, pool); on a GPU with a CUDA stream and pool of its own. There
// work begins after what its submitter had asked of the GPU, and what follows wait() comes after the work: what both
// touch must live until then. An exception ends the queue: what follows is dropped, and the next wait() or submit()
// rethrows it. On a GPU, blocks of an urgent one's kernels are begun before those of other streams' that wait.
class Stream {
 public:
  explicit Stream(bool high_priority = false);
  ~Stream();  // finishes what is queued
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void submit(std::function<void()> work);
  void wait();  // until all submitted work is done
  void wait_until_pending(size_t works);  // until no more than these are to be done, or an error has ended the queue

 private:
  void run(Context inherited);

  struct Work {
    Event after;
    std::function<void()> run;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  Event done_;  // the end of the last work
  bool busy_ = false, closing_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace godwit
