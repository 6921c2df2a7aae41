// EF-signSGD (Karimireddy et al. 2019): scaled signs of the gradients with error feedback.
#pragma once
#include "comm/exchange/error_feedback_all_reduce.h"
#include "comm/exchange/exchange.h"

namespace godwit {

// Replaces the gradient by its ErrorFeedbackAllReduce. Errors are in gradient units and contain no learning rate.
class EfSignSgd : public Exchange {
 public:
  EfSignSgd(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm);
  void mean(Bucket& bucket, Communicator& comm, int64_t step) override;
  std::vector<StatePart> state() const override;  // "e", "server_e"

 private:
  ErrorFeedbackAllReduce all_reduce_;
};

}  // namespace godwit
