#include "comm/exchange/ef_signsgd.h"

namespace godwit {

EfSignSgd::EfSignSgd(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm)
    : all_reduce_("ef_signsgd", {sign_scale(config.sign_scale), config.block_size}, buckets, comm) {}

void EfSignSgd::mean(Bucket& bucket, Communicator& comm, int64_t step) {
  all_reduce_.mean(bucket, bucket.grad, bucket.grad, comm, step);
}

std::vector<StatePart> EfSignSgd::state() const { return all_reduce_.state(); }

}  // namespace godwit
