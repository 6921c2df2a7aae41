#include "engine/stream.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "engine/check.h"
#include "engine/start_thread.h"
#include "engine/trace.h"

namespace godwit {
namespace {

// Requests short time slices, so that the communication thread runs soon after it wakes on a busy core. Otherwise, it
// sees messages some milliseconds late. The thread's share of the core stays the same. No effect before Linux 6.12.
void use_short_time_slices() {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;  // runtime: length of a slice in nanoseconds
  } attributes = {};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.runtime = 100'000;
  (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

Stream::Stream(bool high_priority)
    : thread_(start_thread([this, inherited = context().cuda ? context_on(context().device, high_priority)
                                                             : context()]() mutable { run(std::move(inherited)); },
                           detail::concat("the communication thread of rank ", context().rank),
                           " or start fewer ranks on this machine")) {}

Stream::~Stream() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::submit(std::function<void()> work) {
  Event after = Event::record();
  {
    std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    queue_.push_back({std::move(after), std::move(work)});
  }
  changed_.notify_all();
}

void Stream::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
  done_.wait();
  if (error_) std::rethrow_exception(error_);
}

void Stream::synchronize() {
  wait();
  Event done;
  {
    std::lock_guard lock(mutex_);
    done = done_;
  }
  done.block();
}

void Stream::wait_until_pending(size_t tasks) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.size() + (busy_ ? 1 : 0) <= tasks; });
}

void Stream::run(Context inherited) {
  ContextGuard guard(std::move(inherited));
  use_short_time_slices();
  if (context().trace) context().trace->name_thread("communication");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    Event done;
    try {
      work.after.wait();
      work.run();
      done = Event::record();
    } catch (...) {
      error = std::current_exception();
      try {  // work queued before the exception may still run
        done = Event::record();
      } catch (const Error&) {  // a lost GPU runs nothing
      }
    }
    work = {};  // frees the task's captures before it counts as done, and without the lock
    std::deque<Work> dropped;
    lock.lock();
    done_ = std::move(done);
    if (error) {
      error_ = error;
      dropped.swap(queue_);
      lock.unlock();
      dropped.clear();
      lock.lock();
    }
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace godwit
