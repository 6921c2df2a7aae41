// Stream: a thread that runs submitted tasks in order, concurrently with the submitting thread.
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

// The thread inherits the creator's context (rank, threads, pool). On a GPU, the thread has a separate CUDA stream and
// pool. A task is ordered after everything that the submitting thread had queued on the GPU. Work queued after wait()
// is ordered after the task. Shared buffers must outlive the task. After an exception of a task, the queued tasks are
// dropped, and every wait() and submit() rethrows the exception. `high_priority`: on a GPU, the thread blocks of this
// stream are scheduled before waiting thread blocks of other streams.
class Stream {
 public:
  explicit Stream(bool high_priority = false);  // starts the thread
  ~Stream();                                    // finishes all queued tasks
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void submit(std::function<void()> work);  // queues a task
  void wait();                              // blocks until all submitted tasks are done
  void synchronize();                       // wait(), then blocks until the GPU has finished the tasks' work
  void wait_until_pending(size_t tasks);    // blocks until at most `tasks` tasks remain, or the queue has failed

 private:
  void run(Context inherited);

  struct Work {
    Event after;
    std::function<void()> run;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  Event done_;  // recorded after the last task
  bool busy_ = false, closing_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace godwit
