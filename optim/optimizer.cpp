#include "optim/optimizer.h"

#include "engine/hash.h"

namespace godwit {

void Optimizer::exchange(Bucket& bucket, Communicator& comm, const StepInfo&) {
  check(exchange_ != nullptr, "optimizer: no exchange was given");
  exchange_->mean(bucket, comm);
}

uint64_t Optimizer::shared_state_hash() const {
  Hash hash;
  for (const OptimizerState& part : state())
    if (part.replicated) hash.add(part.values, part.values.numel());
  return hash.value();
}

}  // namespace godwit
