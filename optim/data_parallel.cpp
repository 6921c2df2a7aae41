#include "optim/data_parallel.h"

#include "comm/agree.h"

namespace godwit {
namespace {

// Birder's shards and segments are whole words of bits.
BucketOptions aligned(BucketOptions options, const Communicator& comm) {
  options.alignment = int64_t{32} * comm.topology.world();
  return options;
}

Buckets made_buckets(const std::vector<Parameter>& parameters, const DataParallelOptions& options,
                     const Communicator& comm) {
  Buckets buckets(parameters, aligned(options.buckets, comm));
  const ExchangeConfig& exchange = options.exchange;
  if (communicates_itself(options.optimizer.name)) {
    check(exchange.sharding == "none", options.optimizer.name, ": keeps state of all parameters on every rank, which ",
          "sharding ", exchange.sharding, " cannot divide; leave exchange.sharding out, or take an optimizer behind an ",
          "exchange, as adamw");
    return buckets;
  }
  check_sharding(exchange);
  if (exchange.sharding == "none") return buckets;
  std::optional<int64_t> block_size;
  if (shards_are_blocks(exchange)) block_size = exchange.block_size;
  if (needs_whole_parameters(options.optimizer.name)) block_size = 0;
  shard(buckets, comm, block_size);
  return buckets;
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
      buckets_(made_buckets(parameters, options, comm)),
      optimizer_(make_optimizer(options.optimizer, buckets_, comm, options.seed,
                                exchange_of(options, buckets_, comm))),
      communicates_itself_(communicates_itself(options.optimizer.name)),
      clip_(options.clip_norm == 0 ? nullptr : std::make_unique<NormClip>(buckets_, options.clip_norm)),
      scheduler_(buckets_, [this](Bucket& bucket) { work(bucket); }) {
  check_same(*comm.world, buckets_.layout_hash(), "the model's parameters (names, shapes, order)");
  check_same(*comm.world, buckets_.value_hash(), "the initial weights");
  if (!communicates_itself_ && options.exchange.sharding != "none")
    shards_ = std::make_unique<ShardedParameters>(buckets_, options.exchange.parameter_wire, options.exchange.block_size);
}

void DataParallel::work(Bucket& bucket) {
  if (!clip_ || !communicates_itself_) optimizer_->exchange(bucket, comm_, info_);
  if (!clip_) return update(bucket);
  options_.exchange.sharding == "zero2" ? clip_->measure(bucket, bucket.owned) : clip_->measure(bucket);
}

void DataParallel::update(Bucket& bucket) {
  if (shards_) shards_->before_update(bucket);
  optimizer_->apply(bucket, info_);
  if (options_.updated) options_.updated(bucket, info_);
  if (shards_) shards_->after_update(bucket, *comm_.world);
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
  const bool parts = options_.exchange.sharding == "zero2";
  const double factor = communicates_itself_ ? clip_->factor(info_.step, *comm_.world, Reduce::mean)
                        : parts              ? clip_->factor(info_.step, *comm_.world, Reduce::sum)
                                             : clip_->factor(info_.step);
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

void DataParallel::with_masters(const std::function<void()>& f) {
  shards_ ? shards_->with_masters(buckets_, *comm_.world, f) : f();
}

void DataParallel::gather(const Bucket& bucket, const Tensor& x) {
  if (shards_) all_gather_shards(bucket, x, *comm_.world, "parameters/gather");
}

std::vector<StatePart> DataParallel::master_state() const {
  return shards_ ? shards_->state() : std::vector<StatePart>();
}

}  // namespace godwit
