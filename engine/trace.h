// Trace: a timeline of the threads of one rank.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/clock.h"

namespace godwit {

// An interval of one thread. The intervals of a thread are nested.
struct TraceEvent {
  std::string name;                  // activity of the thread
  Clock::time_point begin{}, end{};  // bounds of the interval
  int64_t bucket = -1;    // bucket of parameters that the interval concerns; -1: none
  std::string parameter;  // first parameter of the bucket
  int64_t bytes = 0;      // size of the bucket's gradient
  int row = 0;            // row of the thread, set by Trace::add()
};

// Shared by the threads of a rank through Context::trace. Thread-safe.
class Trace {
 public:
  // Starts or stops recording the ranges of steps (ProfileRange::Of::step). Ranges of the run are always recorded.
  void record(bool steps) { recording_ = steps; }
  bool recording() const { return recording_; }  // whether ranges of steps are recorded
  void name_thread(const std::string& name);     // names the calling thread's row, such as "compute"
  void add(TraceEvent event);                    // adds an event of the calling thread; beyond 100,000 events, drops it
  std::vector<TraceEvent> events() const;        // all events, ordered by their ends
  std::vector<std::string> rows() const;         // names of the threads
  int64_t dropped() const;                       // number of dropped events

 private:
  int row();

  std::atomic<bool> recording_{false};
  mutable std::mutex mutex_;
  std::vector<TraceEvent> events_;
  std::vector<std::thread::id> threads_;
  std::vector<std::string> names_;
  int64_t dropped_ = 0;
};

}  // namespace godwit
