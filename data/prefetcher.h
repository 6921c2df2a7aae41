// Prefetcher: prepares batches in advance, in order, on low-priority threads.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace godwit {
class Trace;
}

namespace godwit::data {

// A batch in preparation. The parts of a job are started in order. The job is ready when all parts are done. Objects to
// which a job refers must outlive the prefetcher.
class PrefetchJob {
 public:
  virtual ~PrefetchJob() = default;
  virtual size_t parts() const = 0;       // number of parts; constant, at least 1
  virtual void prepare(size_t part) = 0;  // called once per part, concurrently on several threads

 private:
  friend class Prefetcher;
  size_t taken_ = 0, done_ = 0;
  std::exception_ptr error_;
};

// Runs jobs before their results are needed.
class Prefetcher {
 public:
  // ahead: jobs in flight or ready; workers: threads; both at least 1. name: name of the threads in a trace, before
  // their number.
  Prefetcher(int ahead, int workers, const std::string& name = "loader");
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  using Make = std::function<std::shared_ptr<PrefetchJob>()>;  // creates the next job; returns null at the end
  void start(Make make);  // drops all jobs; make() runs on the caller's thread
  std::shared_ptr<PrefetchJob> next();  // in the order of make(); null at the end; rethrows an error of prepare()

 private:
  void close();  // ends and joins all threads
  void drop();
  void submit();
  void work(const std::string& name, const std::shared_ptr<Trace>& trace);

  const int count_;
  Make make_;
  std::mutex mutex_;
  std::condition_variable submitted_more_, done_more_;
  std::deque<std::shared_ptr<PrefetchJob>> ahead_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace godwit::data
