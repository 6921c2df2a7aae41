// Optimizer: two phases per bucket, so that communication and update run beside the backward pass.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/parallel/bucket.h"
#include "comm/exchange/exchange.h"
#include "comm/group.h"
#include "comm/state_tensor.h"

namespace godwit {

struct StepInfo {
  int64_t step;  // 1, 2, …
  double lr;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // What must cross the network. By default: the mean of the gradients, through the Exchange.
  virtual void exchange(Bucket& bucket, Communicator& comm, const StepInfo& step);
  // exchange() or apply() throws by itself, naming step and parameter, when a gradient is not finite.
  virtual bool refuses_not_finite() const { return false; }
  // Updates bucket.param; the padding stays zero.
  virtual void apply(Bucket& bucket, const StepInfo& step) = 0;

  // False after a step that leaves each replica with parameters of its own (0/1 Adam's local steps).
  virtual bool synchronised() const { return true; }
  // Then, collective, of all buckets after that step: makes the replicas agree.
  virtual void synchronise(Buckets&, Communicator&) {}

  virtual std::vector<StatePart> state() const { return {}; }  // its own, without that of its exchange
  std::vector<StatePart> exchange_state() const;               // errors that an exchange feeds back, …
  std::string exchange_summary(Group& world) const;            // collective: Exchange::summary()
  uint64_t shared_state_hash() const;  // of the bits of all replicated state: equal on replicas

 protected:
  explicit Optimizer(std::unique_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

 private:
  std::unique_ptr<Exchange> exchange_;  // null for optimizers that communicate themselves
};

}  // namespace godwit
