#include "optim/data_parallel.h"

#include "comm/agree.h"

namespace godwit {
namespace {

// Birder's shards and segments are whole words of bits.
BucketOptions aligned(BucketOptions options, const Communicator& comm) {
  options.alignment = int64_t{32} * comm.topology.world();
  return options;
}

std::unique_ptr<Exchange> exchange_of(const DataParallelOptions& options, const Buckets& buckets,
                                      const Communicator& comm) {
  if (communicates_itself(options.optimizer.name)) return nullptr;
  return make_exchange(options.exchange, buckets, comm, options.seed);
}

}  // namespace

DataParallel::DataParallel(const std::vector<Parameter>& parameters, Communicator& comm,
                           const DataParallelOptions& options)
    : comm_(comm),
      options_(options),
      buckets_(parameters, aligned(options.buckets, comm)),
      optimizer_(make_optimizer(options.optimizer, buckets_, comm, options.seed,
                                exchange_of(options, buckets_, comm))),
      communicates_itself_(communicates_itself(options.optimizer.name)),
      clip_(options.clip_norm == 0 ? nullptr : std::make_unique<NormClip>(buckets_, options.clip_norm)),
      scheduler_(buckets_, [this](Bucket& bucket) { work(bucket); }) {
  check_same(*comm.world, buckets_.layout_hash(), "the model's parameters (names, shapes, order)");
  check_same(*comm.world, buckets_.value_hash(), "the initial weights");
}

void DataParallel::work(Bucket& bucket) {
  if (!clip_ || !communicates_itself_) optimizer_->exchange(bucket, comm_, info_);
  clip_ ? clip_->measure(bucket) : update(bucket);
}

void DataParallel::update(Bucket& bucket) {
  optimizer_->apply(bucket, info_);
  if (options_.updated) options_.updated(bucket, info_);
}

void DataParallel::begin_step(double lr, int micro_batches) {
  scheduler_.begin_step(micro_batches);
  info_ = {info_.step + 1, lr};
}

void DataParallel::finish_step() {
  scheduler_.finish_step();
  if (clip_) clip_and_update();
}

void DataParallel::clip_and_update() {
  const double factor = communicates_itself_ ? clip_->factor(info_.step, *comm_.world) : clip_->factor(info_.step);
  for (Bucket& bucket : buckets_) {
    if (factor < 1) scale_gradient(bucket, factor);
    if (communicates_itself_) optimizer_->exchange(bucket, comm_, info_);
    update(bucket);
  }
}

void DataParallel::step(const Var& loss, double lr) {
  begin_step(lr);
  backward(loss);
  finish_step();
}

void DataParallel::check_replicas() {
  const std::string when = " after step " + std::to_string(info_.step);
  check_same(*comm_.world, buckets_.value_hash(), "the parameters" + when);
  check_same(*comm_.world, optimizer_->shared_state_hash(), "the optimizer's shared state" + when);
}

}  // namespace godwit
