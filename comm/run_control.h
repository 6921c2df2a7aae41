// RunControl: failures, busy ranks and stops of a run.
#pragma once
#include <chrono>
#include <memory>
#include <string>

namespace godwit {

// One rank's access to the run. The groups of a rank share it.
class RunControl {
 public:
  virtual ~RunControl() = default;
  // Peers then throw an Error with this reason instead of waiting for this rank.
  virtual void abort(const std::string& reason) = 0;
  // While the returned object exists, no rank times out while waiting for this rank. For long work of one rank, such as
  // writing files. A stopped or ended process is still detected.
  virtual std::shared_ptr<void> busy() = 0;
  virtual std::chrono::steady_clock::time_point last_busy() = 0;  // last time at which a rank was known to be busy
  // Returns whether to take the next step. Every rank of the run must call this function before each step. After a rank
  // has passed stop = true, the function returns false on all ranks before one step, the first that no rank has begun.
  // Messages are sent only after a stop.
  virtual bool may_continue(bool stop) = 0;
  virtual void forget_stop() = 0;  // for continue_steps(); no rank may be in may_continue()
  // Whether a rank of the run has ever passed stop = true to stop_requested(). Not collective; peers receive the
  // request with a delay.
  virtual bool stop_requested(bool stop) = 0;
};

// The RunControl of a run with one rank. may_continue(false) returns true, also after a stop.
class SingleRunControl : public RunControl {
 public:
  void abort(const std::string&) override {}
  std::shared_ptr<void> busy() override { return nullptr; }
  std::chrono::steady_clock::time_point last_busy() override { return {}; }
  bool may_continue(bool stop) override { return !stop; }
  void forget_stop() override {}
  bool stop_requested(bool stop) override { return stop_ = stop_ || stop; }

 private:
  bool stop_ = false;
};

}  // namespace godwit
