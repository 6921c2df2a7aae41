// EF-signSGD: scaled signs of the gradients, with what they leave out fed back (Karimireddy et al. 2019).
#pragma once
#include "comm/exchange/error_feedback_all_reduce.h"
#include "comm/exchange/exchange.h"

namespace godwit {

// The gradient becomes the ErrorFeedbackAllReduce of itself. Errors are gradients: they never contain a learning rate.
class EfSignSgd : public Exchange {
 public:
  EfSignSgd(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm);
  void mean(Bucket& bucket, Communicator& comm, int64_t step) override;
  std::vector<StatePart> state() const override;  // "e", "server_e"

 private:
  ErrorFeedbackAllReduce all_reduce_;
};

}  // namespace godwit
