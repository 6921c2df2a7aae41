// HostReads: deferred reads of GPU values. The host queues more work instead of waiting for each value.
#pragma once
#include <array>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/event.h"
#include "engine/tensor.h"

namespace godwit {

// The reads of one step. add() queues a copy of the values to page-locked memory on the calling thread's stream. run()
// waits for the copies and passes them to the functions given to add().
class HostReads {
 public:
  using Read = std::function<void(const Tensor& values)>;  // values: on the CPU
  // Order in which run() calls the functions. Messages between ranks may spread a non-finite value of one rank to
  // others. Therefore, `shared` values are read after all ranks have checked their own values.
  enum class Order { first, own, shared };

  HostReads() = default;
  ~HostReads();  // waits for the copies
  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;

  void add(const Tensor& x, Read read, Order order = Order::own);  // thread-safe
  // Ends the step: the copies are complete when the calling thread's stream has finished the work queued so far. Before
  // the call, make this stream wait for the streams of all other threads that called add().
  void close();
  // Blocks until the GPU has made the copies, then calls the functions by Order and, within an Order, in the order of
  // add(). If a function throws, the remaining functions are dropped. Calls close() if it was not called. If there are
  // shared values, run() calls `meet` before reading them. Without `meet`, the shared values are dropped.
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

// During the lifetime of this object, read_on_host() on the calling thread adds to `reads`.
class HostReadsScope {
 public:
  explicit HostReadsScope(HostReads& reads);  // replaces the thread's current HostReads
  ~HostReadsScope();                          // restores the previous HostReads
  HostReadsScope(const HostReadsScope&) = delete;
  HostReadsScope& operator=(const HostReadsScope&) = delete;

 private:
  HostReads* before_;
};

// Calls read() with x's values on the CPU. If x is on a GPU and the thread has a HostReadsScope, HostReads::run() makes
// the call. Otherwise the call is immediate; for a GPU tensor, the host first waits for the values.
void read_on_host(const Tensor& x, HostReads::Read read, HostReads::Order order = HostReads::Order::own);
bool reads_later(Device device);  // whether read_on_host() defers the call for tensors of this device

}  // namespace godwit
