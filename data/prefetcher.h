// Prefetcher: batches prepared ahead, in order, by a few threads of low priority.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace godwit::data {

// A batch in work: its parts are handed out in order, it is ready when all of them are done. It holds what it needs, or
// refers to what outlives the prefetcher.
class PrefetchJob {
 public:
  virtual ~PrefetchJob() = default;
  virtual size_t parts() const = 0;       // at least 1, always the same
  virtual void prepare(size_t part) = 0;  // called once for each part, from several threads at once

 private:
  friend class Prefetcher;
  size_t taken_ = 0, done_ = 0;
  std::exception_ptr error_;
};

class Prefetcher {
 public:
  Prefetcher(int ahead, int workers);  // jobs held ready or in work, threads; both at least 1
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  using Make = std::function<std::shared_ptr<PrefetchJob>()>;
  void start(Make make);                // drops what is ahead; make() runs on the caller's thread, null ends the row
  std::shared_ptr<PrefetchJob> next();  // in the order made; null at the end; rethrows what prepare() threw

 private:
  void close();  // ends and joins the threads that were started
  void drop();
  void submit();
  void work();

  const int count_;
  Make make_;
  std::mutex mutex_;
  std::condition_variable submitted_more_, done_more_;
  std::deque<std::shared_ptr<PrefetchJob>> ahead_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace godwit::data
