// The buckets and shards of a DataParallel.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "autograd/leaf.h"
#include "engine/context.h"
#include "engine/hash.h"
#include "optim/data_parallel.h"

namespace godwit {
namespace {

// Birder's shards and segments are whole words of bits.
BucketOptions bucket_options(const DataParallelOptions& options, const Communicator& comm) {
  BucketOptions result = options.buckets;
  result.alignment = int64_t{32} * comm.topology.world();
  result.on_demand_gradients = shards_gradients(options.exchange.sharding);
  return result;
}

// See ExchangeConfig::shard_unit().
std::optional<int64_t> shard_unit(const DataParallelOptions& options) {
  const OptimizerConfig& optimizer = options.optimizer;
  const auto needs_whole_parameters = optimizer.method().needs_whole_parameters;
  if (needs_whole_parameters && needs_whole_parameters(optimizer.options())) return 0;
  if (!optimizer.method().communicates_itself) {
    if (options.make_exchange && options.exchange.sharding == Sharding::hybrid) return 0;
    return options.exchange.shard_unit();
  }
  if (optimizer.has("block_size")) {
    const auto size = static_cast<int64_t>(optimizer.number("block_size"));
    const bool blocks_of_wire = size > 0 && options.exchange.parameter_wire == ParameterWire::int8;
    return blocks_of_wire ? std::lcm(size, options.exchange.block_size()) : size;
  }
  if (options.exchange.parameter_wire == ParameterWire::int8) return options.exchange.block_size();
  return std::nullopt;
}

// Hashes the values of a parameter, but only the first 256 of a deferred parameter, because the files of two nodes may
// differ. Skips deferred values whose layout differs from the file's, because reading some would compute all.
void add_values(const Slot& slot, Hash* hash) {
  if (!Leaf(slot.var).is_deferred()) return hash->add(slot.var.value(), slot.numel);
  if (slot.layout != FileLayout::as_in_memory) return;
  const Tensor first({std::min<int64_t>(slot.numel, 256)}, slot.var.dtype());
  Leaf(slot.var).read(first, 0);
  hash->add(first, first.numel());
}

}  // namespace

void check_sharding(const DataParallelOptions& options) {
  const ExchangeConfig& exchange = options.exchange;
  check(exchange.sharding != Sharding::automatic, kShardingNotChosen);
  exchange.check_values();
  if (!options.optimizer.method().communicates_itself) {
    check(!exchange.method().mean_is_signs || options.clip_norm == 0, exchange.name(),
          ": the mean consists of signs, whose norm is equal in every step, so clip.norm ", options.clip_norm,
          " would only multiply the learning rate by clip.norm/√(number of parameters); set clip.norm=0");
    return;
  }
  check(exchange.name() == "dense", options.optimizer.name(), ": communicates itself and takes no exchange, got '",
        exchange.name(), "'; choose another optimizer, such as sgdm, or leave the exchange out");
  check_sharding(options.optimizer, exchange.sharding);
  check(exchange.sharding == Sharding::none || !options.optimizer.has("frozen") ||
            options.optimizer.text("frozen").empty(),
        options.optimizer.name(), ": frozen names parameters, but with sharding hybrid a worker has only some; leave ",
        "optimizer.frozen or exchange.sharding out");
  check(exchange.sharding == Sharding::none || !options.optimizer.has("collective") ||
            options.optimizer.text("collective") == "h1ar",
        options.optimizer.name(), ": with sharding hybrid, a node is one sender, but with collective ",
        "all_gather, each worker is a sender; set optimizer.collective=h1ar, or leave exchange.sharding out");
  if (exchange.sharding == Sharding::hybrid && options.optimizer.has("block_size"))
    check_hybrid_block_size(options.optimizer.name(), static_cast<int64_t>(options.optimizer.number("block_size")));
}

DataParallel::Layout DataParallel::lay_out(const std::vector<Parameter>& parameters, const DataParallelOptions& options,
                                           const Communicator& comm) {
  check_sharding(options);
  const Sharding sharding = options.exchange.sharding;
  BucketOptions of_buckets = bucket_options(options, comm);
  std::vector<Bucket> own;
  Hash hash;
  if (shards_parameters(sharding)) {
    const bool hybrid = sharding == Sharding::hybrid;
    const int ranks = hybrid ? comm.topology.workers_per_node : comm.topology.world();
    of_buckets.take_parameters = [&, hybrid, ranks](Bucket& bucket) {
      shard(bucket, ranks, hybrid ? comm.local_rank() : comm.rank, shard_unit(options));
      for (const Slot& slot : bucket.slots) add_values(slot, &hash);
      own.push_back(ParameterShards::own_bucket(bucket, int64_t{32} * (hybrid ? comm.topology.nodes : 1)));
    };
  }
  Buckets buckets(parameters, of_buckets);
  if (sharding != Sharding::none && !shards_parameters(sharding)) shard(buckets, comm, shard_unit(options));
  const uint64_t values = own.empty() ? buckets.value_hash() : hash.value();
  return {std::move(buckets), std::move(own), values};
}

}  // namespace godwit
