// HostReads: GPU values that the host reads later, so that it does not wait while it could queue more work.
#pragma once
#include <array>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/event.h"
#include "engine/tensor.h"

namespace godwit {

// Values of one step. add() copies them to page-locked memory in the order of the calling thread's stream; run() waits
// for the copies and passes them on.
class HostReads {
 public:
  using Read = std::function<void(const Tensor& values)>;  // values: on the CPU
  // When run() calls a function. A non-finite value of one rank may spread to other ranks through its messages.
  // `shared` values are therefore read after all ranks have found their own values correct.
  enum class Order { first, own, shared };

  HostReads() = default;
  ~HostReads();  // waits for the copies
  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;

  void add(const Tensor& x, Read read, Order order = Order::own);  // thread-safe
  // Ends the step: its copies are complete when the calling thread's stream has done the work queued so far. That
  // stream must have waited for the streams of other threads that called add().
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
  ~HostReadsScope();                          // restores it
  HostReadsScope(const HostReadsScope&) = delete;
  HostReadsScope& operator=(const HostReadsScope&) = delete;

 private:
  HostReads* before_;
};

// Calls read(x on the CPU): now if x is on the CPU or the thread has no HostReadsScope, which makes the host wait;
// otherwise when the scope's reads run.
void read_on_host(const Tensor& x, HostReads::Read read, HostReads::Order order = HostReads::Order::own);
bool reads_later(Device device);  // whether read_on_host() for a tensor of this device calls `read` later

}  // namespace godwit
