// Optimizer: exchanges and applies each bucket separately, so that communication and updates overlap with the backward
// pass.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/buckets/bucket.h"
#include "comm/exchange/exchange.h"
#include "comm/group.h"
#include "comm/state_tensor.h"

namespace godwit {

// Number and learning rate of a step.
struct StepInfo {
  int64_t step;  // 1, 2, …
  double lr;     // learning rate
};

// Updates parameters after exchanging gradients or updates between ranks.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Collective: communicates for the bucket. By default, replaces the gradient by its mean through the Exchange.
  virtual void exchange(Bucket& bucket, Communicator& comm, const StepInfo& step);
  // Whether exchange() or apply() throws an Error that names the step and the parameter if a gradient is not finite.
  virtual bool refuses_not_finite() const { return false; }
  // Updates bucket.param; the padding stays zero. May overwrite bucket.grad.
  virtual void apply(Bucket& bucket, const StepInfo& step) = 0;

  // False after a step that leaves the replicas different (0/1 Adam's local steps).
  virtual bool synchronized() const { return true; }
  // One line for the user about the last applied step, such as the end of a warm-up. Empty after most steps.
  virtual std::string event(int64_t) const { return {}; }
  // Collective over all buckets: makes the replicas identical again after local steps.
  virtual void synchronize(Buckets&, Communicator&) {}

  virtual std::vector<StateTensor> state() const { return {}; }  // excludes the state of the exchange
  std::vector<StateTensor> exchange_state() const;               // state of the exchange, such as error feedback
  // Numbers that checkpoints contain in addition to state(), without the exchange's numbers.
  virtual std::vector<double> counters() const { return {}; }
  virtual void restore(const std::vector<double>& /*counters*/) {}  // called after state() has been restored
  Exchange* exchange_method() const { return exchange_.get(); }     // null if the optimizer communicates itself
  std::string exchange_summary(Group& world) const;            // collective: Exchange::summary()
  uint64_t shared_state_hash() const;  // hash of the bits of all replicated state; equal on replicas

 protected:
  // exchange: null if the optimizer communicates itself.
  explicit Optimizer(std::unique_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

 private:
  std::unique_ptr<Exchange> exchange_;  // null if the optimizer communicates itself
};

}  // namespace godwit
