#include "data/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/start_thread.h"

namespace godwit::data {

void parallel_for_each(int64_t n, int threads, const std::function<void(int64_t)>& f,
                       const ProgressFunction& progress) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::condition_variable finished;
  std::exception_ptr error;
  int64_t failed = n;
  int running = static_cast<int>(std::clamp<int64_t>(threads, 1, std::max<int64_t>(n, 1)));
  std::vector<std::jthread> pool;
  const auto work = [&] {
    for (int64_t i = next++; i < n; i = next++) {
      try {
        f(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        next = n;
        if (i < failed) failed = i, error = std::current_exception();
      }
    }
    const std::lock_guard lock(mutex);
    if (--running == 0) finished.notify_all();
  };
  const int wanted = running;
  try {
    for (int t = 1; t <= wanted; ++t)
      pool.push_back(
          start_thread<std::jthread>(work, detail::concat("thread ", t, " of ", wanted, " that read the data")));
  } catch (...) {
    next = n;
    throw;  // jthreads that were started are joined
  }
  {
    std::unique_lock lock(mutex);
    while (!finished.wait_for(lock, std::chrono::milliseconds(500), [&] { return running == 0; })) {
      if (!progress) continue;
      lock.unlock();
      progress(std::min(next.load(), n), n);
      lock.lock();
    }
  }
  pool.clear();  // joins
  if (error) std::rethrow_exception(error);
}

}  // namespace godwit::data
