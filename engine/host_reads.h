// HostReads: deferred reads of GPU values, so that the host can queue more work instead of waiting.
#pragma once
#include <array>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/event.h"
#include "engine/tensor.h"

namespace godwit {

// The reads of one step. add() copies values to page-locked memory in the order of the calling thread's stream. run()
// waits for the copies and passes them to the functions of add().
class HostReads {
 public:
  using Read = std::function<void(const Tensor& values)>;  // values: on the CPU
  // Order in which run() calls the functions. Messages may spread a non-finite value of one rank to other ranks.
  // `shared` values are therefore read after all ranks have checked their own values.
  enum class Order { first, own, shared };

  HostReads() = default;
  ~HostReads();  // waits for the copies
  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;

  void add(const Tensor& x, Read read, Order order = Order::own);  // thread-safe
  // Ends the step: its copies are complete when the calling thread's stream has done the work queued so far. Before,
  // make this stream wait for the streams of all other threads that called add().
  void close();
  // Blocks until the GPU has made the copies, then calls the functions by Order and in the order of add(). If one
  // throws, the others are dropped. Calls close() if it was not called. `meet` is called before the shared values are
  // read, if there are any; without `meet` they are dropped.
  void run(const std::function<void()>& meet = nullptr);

 private:
  struct Pending {
    Tensor values;
    Read read;
  };

  std::mutex mutex_;
  std::array<std::vector<Pending>, 3> pending_;  // by Order
  bool closed_ = false;
  Event copied_;
};

// During its lifetime, read_on_host() of the calling thread adds to `reads`.
class HostReadsScope {
 public:
  explicit HostReadsScope(HostReads& reads);  // replaces the thread's scope
  ~HostReadsScope();                          // restores the previous scope
  HostReadsScope(const HostReadsScope&) = delete;
  HostReadsScope& operator=(const HostReadsScope&) = delete;

 private:
  HostReads* before_;
};

// Calls read() with x's values on the CPU. For a GPU tensor and a thread with a HostReadsScope, HostReads::run() makes
// the call. Otherwise the call is immediate, after the host has waited for a GPU tensor.
void read_on_host(const Tensor& x, HostReads::Read read, HostReads::Order order = HostReads::Order::own);
bool reads_later(Device device);  // whether read_on_host() for a tensor of this device calls `read` later

}  // namespace godwit
