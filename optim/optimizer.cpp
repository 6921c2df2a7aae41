#include "optim/optimizer.h"

namespace godwit {

void Optimizer::exchange(Bucket& bucket, Communicator& comm, const StepInfo&) {
  check(exchange_ != nullptr, "optimizer: no exchange was given");
  exchange_->mean(bucket, comm);
}

}  // namespace godwit
