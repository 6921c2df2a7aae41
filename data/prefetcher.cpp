#include "data/prefetcher.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "engine/check.h"
#include "engine/context.h"
#include "engine/profile.h"
#include "engine/start_thread.h"
#include "engine/trace.h"

namespace godwit::data {
namespace {

// On Linux, each thread has a nice value. Loader threads yield to computing threads, and use full cores while these
// wait for data.
void lower_priority() { (void)setpriority(PRIO_PROCESS, 0, 10); }

}  // namespace

Prefetcher::Prefetcher(int ahead, int workers, const std::string& name) : count_(ahead) {
  check(ahead >= 1, "loader: prefetch ", ahead, ", expected at least 1 batch");
  check(workers >= 1, "loader: ", workers, " workers, expected at least 1");
  try {
    for (int i = 0; i < workers; ++i)
      threads_.push_back(
          start_thread([this, row = detail::concat(name, " ", i + 1), trace = context().trace] { work(row, trace); },
                       detail::concat("thread ", i + 1, " of ", workers, " of a loader"), " or lower data.workers"));
  } catch (...) {
    close();
    throw;
  }
}

Prefetcher::~Prefetcher() { close(); }

void Prefetcher::close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  submitted_more_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Cancels parts that have not started, and waits for the others.
void Prefetcher::drop() {
  std::unique_lock lock(mutex_);
  for (const auto& job : ahead_) {
    job->done_ += job->parts() - job->taken_;
    job->taken_ = job->parts();
  }
  for (const auto& job : ahead_) done_more_.wait(lock, [&] { return job->done_ == job->parts(); });
  ahead_.clear();
}

void Prefetcher::start(Make make) {
  drop();
  make_ = std::move(make);
  for (int i = 0; i < count_; ++i) submit();
}

std::shared_ptr<PrefetchJob> Prefetcher::next() {
  std::shared_ptr<PrefetchJob> job;
  {
    std::unique_lock lock(mutex_);
    if (ahead_.empty()) return nullptr;
    job = ahead_.front();
    done_more_.wait(lock, [&] { return job->done_ == job->parts(); });
    ahead_.pop_front();
  }
  submit();
  if (job->error_) std::rethrow_exception(std::move(job->error_));
  return job;
}

void Prefetcher::submit() {
  std::shared_ptr<PrefetchJob> job = make_();
  if (!job) return;
  {
    std::lock_guard lock(mutex_);
    ahead_.push_back(std::move(job));
  }
  submitted_more_.notify_all();
}

void Prefetcher::work(const std::string& name, const std::shared_ptr<Trace>& trace) {
  lower_priority();
  const ContextGuard guard([&](Context& next) { next.trace = trace; });
  if (trace) trace->name_thread(name);
  std::unique_lock lock(mutex_);
  const auto waiting = [](const auto& job) { return job->taken_ < job->parts(); };
  while (true) {
    auto next = ahead_.end();
    submitted_more_.wait(
        lock, [&] { return closing_ || (next = std::find_if(ahead_.begin(), ahead_.end(), waiting)) != ahead_.end(); });
    if (closing_) return;
    const std::shared_ptr<PrefetchJob> job = *next;
    const size_t part = job->taken_++;
    lock.unlock();
    // Captured before locking: the rethrowing thread is then the last owner, as ThreadSanitizer can verify.
    std::exception_ptr error;
    try {
      const ProfileRange range("prepare batch");
      job->prepare(part);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !job->error_) job->error_ = std::move(error);
    if (++job->done_ == job->parts()) done_more_.notify_all();
  }
}

}  // namespace godwit::data
