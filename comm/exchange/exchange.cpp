#include "comm/exchange/exchange.h"

#include <algorithm>

#include "comm/exchange/block_exchange.h"
#include "comm/compress/codecs.h"
#include "comm/exchange/ef_signsgd.h"
#include "comm/exchange/exchanges.h"
#include "comm/exchange/loco.h"
#include "comm/reduce.h"
#include "comm/parallel/sharding.h"
#include "comm/compress/wire/half.h"
#include "engine/did_you_mean.h"

namespace godwit {
namespace {

void check_divides(const Bucket& bucket, int ranks, const char* name) {
  check(bucket.padded() % ranks == 0, name, ": bucket ", bucket.index, " has ", bucket.padded(),
        " elements, not a multiple of the ", ranks, " ranks; choose the buckets' alignment so");
}

// This rank's part of Σ x over the group's ranks / divisor, with 16 bits on the wire: every rank rounds its values and
// sends each peer its part; a part's owner adds in float32 and in rank order, divides, and rounds once.
Tensor half_mean_part(Group& group, const Tensor& x, DType wire, int divisor, const char* name, const char* phase) {
  const Tensor all = to_half(x, wire, name), parts(x.shape(), wire), own({x.numel() / group.size()}, wire);
  group.all_to_all(all, parts, phase);
  mean_of_halves(parts, divisor, own);
  return own;
}

// x ← Σ x over the group's ranks / divisor.
void half_mean(Group& group, const Tensor& x, DType wire, int divisor, const char* name, const char* to_owners,
               const char* to_all) {
  const Tensor own = half_mean_part(group, x, wire, divisor, name, to_owners), all(x.shape(), wire);
  group.all_gather(own, all, to_all);
  from_half(all, x);
}

class Dense : public Exchange {
 public:
  Dense(DType wire, bool to_owners) : wire_(wire), to_owners_(to_owners) {}
  void mean(Bucket& bucket, Communicator& comm, int64_t) override {
    Group& world = *comm.world;
    if (wire_ == DType::f32 || world.size() == 1) {
      if (to_owners_) return mean_to_owners(bucket, world, "dense/reduce_scatter");
      return world.all_reduce(bucket.grad, Reduce::mean, "dense/all_reduce");
    }
    check_divides(bucket, world.size(), "dense");
    if (!to_owners_)
      return half_mean(world, bucket.grad, wire_, world.size(), "dense", "dense/all_to_all", "dense/all_gather");
    const Tensor own =
        half_mean_part(world, shards_as_parts(bucket, bucket.grad), wire_, world.size(), "dense", "dense/all_to_all");
    const Segment& owned = bucket.owned;
    from_half(own.range(0, owned.numel()), bucket.grad.range(owned.begin, owned.numel()));
  }

 private:
  DType wire_;
  bool to_owners_;  // zero2
};

// Rounds differently from Dense: it adds the sums of the nodes, ((a+b)+(c+d)), while Dense adds rank by rank,
// (((a+b)+c)+d). Both divide once.
class Hierarchical : public Exchange {
 public:
  explicit Hierarchical(DType wire) : wire_(wire) {}
  void mean(Bucket& bucket, Communicator& comm, int64_t) override {
    const int world = comm.topology.world();
    check_divides(bucket, world, "hierarchical");
    const Tensor shard({bucket.padded() / comm.topology.workers_per_node}, bucket.grad.dtype());
    comm.intra->reduce_scatter(bucket.grad, shard, Reduce::sum, "hierarchical/intra_reduce_scatter");
    if (wire_ == DType::f32 || comm.inter->size() == 1) {
      comm.inter->all_reduce(shard, Reduce::sum, "hierarchical/inter_all_reduce");
      on_device(shard, [&](auto device) { divide(device, shard, world); });
    } else {
      half_mean(*comm.inter, shard, wire_, world, "hierarchical", "hierarchical/inter_all_to_all",
                "hierarchical/inter_all_gather");
    }
    comm.intra->all_gather(shard, bucket.grad, "hierarchical/intra_all_gather");
  }

 private:
  DType wire_;
};

void check_choice(const char* what, const std::string& value, const std::vector<std::string>& choices) {
  check(std::find(choices.begin(), choices.end(), value) != choices.end(), what, " '", value, "' is unknown",
        suggestion(value, choices));
}

// For exchanges that all-reduce means, so that no owner compresses them.
bool worker_feedback(const ExchangeConfig& config) {
  check_choice("exchange: error_feedback", config.error_feedback, feedback_names());
  check(config.error_feedback == "worker" || config.error_feedback == "none", config.name, ": error_feedback '",
        config.error_feedback, "' needs owners who code the mean; set it to worker or none");
  return config.error_feedback == "worker";
}

bool is_loco(const std::string& name) { return name == "loco" || name == "loco_zeropp"; }

BlockExchangeOptions block_options(const ExchangeConfig& config) {
  check_choice("exchange: reply", config.reply, reply_names());
  check_choice("exchange: error_feedback", config.error_feedback, feedback_names());
  check(config.block_size >= 0, config.name, ": block_size is ", config.block_size,
        "; it must be positive, or 0 for one block per parameter");
  if (config.sharding == "zero2") return {.name = config.name, .block_size = config.block_size, .reply = Reply::owners};
  const std::string& feedback = config.error_feedback;
  BlockExchangeOptions options{.name = config.name, .block_size = config.block_size};
  options.reply = config.reply == "f32" ? Reply::f32 : config.reply == "coded" ? Reply::coded : Reply::none;
  options.worker = feedback == "both" || feedback == "worker" ? Memory::error : Memory::none;
  if (config.name == "ef21") options.worker = Memory::estimate;
  options.server_error = feedback == "both" || feedback == "server";
  return options;
}

// Error feedback converges only if the coding error is smaller than the input. QSGD's expected squared error is up to
// n/(4·levels²) times the squared norm of a block of n values.
void check_contracts(const ExchangeConfig& config, const Buckets& buckets) {
  if (config.name != "qsgd" || config.error_feedback == "none") return;
  int64_t n = 0;
  for (const Bucket& bucket : buckets)
    for (const Slot& slot : bucket.slots)
      n = std::max(n, config.block_size > 0 ? std::min(config.block_size, slot.numel) : slot.numel);
  check(n <= 4 * config.levels * config.levels, "qsgd: ", config.levels, " levels for blocks of ", n,
        " values lose more than error feedback can repair (block_size must be at most 4·levels²); raise "
        "exchange.levels, lower exchange.block_size, or set exchange.error_feedback=none");
}

std::unique_ptr<BlockCodec> codec_of(const ExchangeConfig& config) {
  const std::string& name = config.name;
  if (name == "qsgd") return qsgd_codec(config.levels);
  if (name == "zeropp") return int4_codec();
  if (name == "terngrad") return terngrad_codec(config.clip_sigma);
  if (name == "one_bit_sgd" || (name == "ef21" && config.compressor == "one_bit")) return one_bit_codec();
  check_choice("ef21: compressor", config.compressor, compressor_names());
  return topk_codec(config.density);
}

}  // namespace

std::vector<std::string> exchange_names() {
  return {"dense",   "hierarchical", "qsgd",     "terngrad", "one_bit_sgd", "signsgd", "ef_signsgd",
          "topk",    "randomk",      "powersgd", "ef21",     "zeropp",      "loco",    "loco_zeropp"};
}

std::vector<std::string> wire_names() { return {"f32", "bf16", "f16", "int8"}; }
std::vector<std::string> reply_names() { return {"f32", "coded", "none"}; }
std::vector<std::string> feedback_names() { return {"both", "worker", "server", "none"}; }
std::vector<std::string> error_rounding_names() { return {"random", "nearest"}; }
std::vector<std::string> compressor_names() { return {"topk", "one_bit"}; }

std::vector<std::string> exchange_keys(const std::string& name) {
  check_choice("exchange", name, exchange_names());
  std::vector<std::string> keys{"name", "sharding", "parameter_wire"};
  const auto add = [&](std::initializer_list<const char*> more) { keys.insert(keys.end(), more.begin(), more.end()); };
  if (name == "dense") add({"wire", "error_feedback"});
  else if (name == "hierarchical") add({"wire"});
  else if (is_loco(name))
    add({"bits", "scale", "block_size", "error_scale", "error_rounding", "error_gain_new", "reset_every",
         "clip_element", "saturation_limit"});
  else if (name == "zeropp") add({"block_size"});
  else if (name == "ef_signsgd") add({"block_size", "sign_scale"});
  else if (name == "randomk") add({"density", "block_size", "error_feedback"});
  else if (name == "powersgd") add({"rank", "error_feedback"});
  else if (name != "signsgd") add({"block_size", "reply"});
  if (name == "qsgd") add({"levels", "error_feedback"});
  if (name == "terngrad") add({"clip_sigma"});
  if (name == "one_bit_sgd") add({"error_feedback"});
  if (name == "topk") add({"density", "error_feedback"});
  if (name == "ef21") add({"density", "compressor"});
  return keys;
}

ExchangeConfig exchange_defaults(const std::string& name) {
  exchange_keys(name);  // throws for an unknown name
  ExchangeConfig config;
  config.name = name;
  if (name == "one_bit_sgd") config.reply = "coded", config.error_feedback = "both";
  if (name == "topk" || name == "randomk" || name == "powersgd") config.error_feedback = "worker";
  if (name == "topk" || name == "ef21") config.reply = "none";
  if (name == "topk" || name == "ef21" || name == "randomk") config.block_size = 0;
  if (name == "ef_signsgd") config.block_size = 4096;
  if (name == "zeropp" || name == "loco_zeropp") config.sharding = "zero2", config.parameter_wire = "int8";
  return config;
}

void check_sharding(const ExchangeConfig& config) {
  check_choice("exchange: sharding", config.sharding, sharding_names());
  check_choice("exchange: parameter_wire", config.parameter_wire, parameter_wire_names());
  const bool scatters =
      (config.name == "dense" && config.wire != "int8") || is_loco(config.name) || config.name == "zeropp";
  check(config.sharding != "zero2" || scatters, config.name,
        ": sharding zero2 needs an exchange that can leave each mean with its owner, and ",
        config.name == "dense" ? "dense in int8" : config.name,
        " gives it to every rank; take sharding zero1, or the exchange dense (f32, bf16, f16), loco or zeropp");
  check(config.parameter_wire == "f32" || config.sharding != "none", config.name, ": parameter_wire ",
        config.parameter_wire, " is that of sharded parameters, but sharding is none; take zero1 or zero2");
}

bool shards_are_blocks(const ExchangeConfig& config) {
  return config.parameter_wire == "int8" || (config.sharding == "zero2" && config.name == "zeropp");
}

std::unique_ptr<Exchange> make_exchange(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm,
                                        uint64_t seed) {
  exchange_keys(config.name);  // throws for an unknown name
  check_sharding(config);
  check_choice("exchange: wire", config.wire, wire_names());
  if (is_loco(config.name)) {
    check_choice("exchange: error_rounding", config.error_rounding, error_rounding_names());
    return make_loco(config, buckets, comm, seed);
  }
  if (config.name == "dense" && config.wire == "int8") {
    ExchangeConfig coded = config;
    coded.reply = "coded";
    return block_exchange(int8_codec(), block_options(coded), buckets, comm, seed);
  }
  check(config.name != "dense" || config.error_feedback == "none", "dense: error_feedback ", config.error_feedback,
        " is that of wire int8, not of ", config.wire, "; set exchange.wire=int8, or exchange.error_feedback=none");
  if (config.name == "dense" || config.name == "hierarchical") {
    check(config.wire != "int8", config.name, ": has no wire int8; dense has, hierarchical can send bf16 or f16");
    const DType wire = config.wire == "f32" ? DType::f32 : config.wire == "bf16" ? DType::bf16 : DType::f16;
    if (config.name == "hierarchical") return std::make_unique<Hierarchical>(wire);
    return std::make_unique<Dense>(wire, config.sharding == "zero2");
  }
  if (config.name == "ef_signsgd") return std::make_unique<EfSignSgd>(config, buckets, comm);
  if (config.name == "signsgd") return sign_sgd(buckets, comm);
  if (config.name == "randomk")
    return random_k({config.density, config.block_size, worker_feedback(config)}, buckets, seed);
  if (config.name == "powersgd") return power_sgd({config.rank, worker_feedback(config)}, buckets, seed);
  std::unique_ptr<BlockCodec> codec = codec_of(config);
  check_contracts(config, buckets);
  return block_exchange(std::move(codec), block_options(config), buckets, comm, seed);
}

}  // namespace godwit
