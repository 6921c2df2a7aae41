#include "optim/optimizer.h"

#include "engine/hash.h"

namespace godwit {

void Optimizer::exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) {
  check(exchange_ != nullptr, "optimizer: the exchange is null; pass one, or override exchange()");
  exchange_->mean(bucket, comm, step.step);
}

std::vector<StateTensor> Optimizer::exchange_state() const {
  return exchange_ ? exchange_->state() : std::vector<StateTensor>();
}

std::string Optimizer::exchange_summary(Group& world) const {
  return exchange_ ? exchange_->summary(world) : std::string();
}

uint64_t Optimizer::shared_state_hash() const {
  Hash hash;
  for (const std::vector<StateTensor>& parts : {state(), exchange_state()})
    for (const StateTensor& part : parts)
      if (part.replicated) hash.add(part.values, part.values.numel());
  return hash.value();
}

}  // namespace godwit
