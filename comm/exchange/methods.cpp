// All exchanges. An entry NAME stands for the function NAME_method(), which the exchange's source defines.
#include "comm/exchange/method.h"

#define GODWIT_EXCHANGES(METHOD) \
  METHOD(dense)                  \
  METHOD(hierarchical)           \
  METHOD(qsgd)                   \
  METHOD(terngrad)               \
  METHOD(one_bit_sgd)            \
  METHOD(signsgd)                \
  METHOD(ef_signsgd)             \
  METHOD(topk)                   \
  METHOD(randomk)                \
  METHOD(powersgd)               \
  METHOD(ef21)                   \
  METHOD(zeropp)                 \
  METHOD(loco)                   \
  METHOD(loco_zeropp)

namespace godwit {

#define METHOD(name) const ExchangeMethod& name##_method();
GODWIT_EXCHANGES(METHOD)
#undef METHOD

template <>
std::vector<const ExchangeMethod*>& methods<ExchangeMethod>() {
#define METHOD(name) &name##_method(),
  static std::vector<const ExchangeMethod*> all{GODWIT_EXCHANGES(METHOD)};
#undef METHOD
  return all;
}

ExchangeConfig::ExchangeConfig(const std::string& name, const std::string& json) : ExchangeConfig(name) {
  assign_json(list(), json, name);
}

void ExchangeConfig::add_common(OptionList& list) const {
  ExchangeConfig& self = const_cast<ExchangeConfig&>(*this);  // a list can read and write
  list.add("sharding", self.sharding,
           "what is sharded: zero1 the optimizer state, zero2 the gradients too, zero3 the parameters too, hybrid as "
           "zero3 within each node; auto: hybrid with several workers on each of several nodes, otherwise the "
           "exchange's default");
  list.add("parameter_wire", self.parameter_wire, "type in which sharded parameters are sent");
  list.add("reshard_after_forward", self.reshard_after_forward,
           "zero3 and hybrid: release parameters after the forward pass and gather them again in the backward pass");
}

int64_t ExchangeConfig::block_size() const {
  return has("block_size") ? static_cast<int64_t>(number("block_size")) : 1024;
}

std::optional<int64_t> ExchangeConfig::shard_unit() const {
  const bool int8 = parameter_wire == ParameterWire::int8;
  if (sharding == Sharding::hybrid) {
    const bool by_value = method().supports_zero2 && method().supports_zero2(options());
    if (has("block_size") || (int8 && by_value)) return block_size();
    if (!by_value) return 0;
    return std::nullopt;
  }
  if (int8 || (means_stay_with_owners(sharding) && method().zero2_shards_are_blocks)) return block_size();
  return std::nullopt;
}

bool ExchangeConfig::hybrid_reads(const std::string& name) const {
  return (sharding == Sharding::hybrid || sharding == Sharding::automatic) &&
         (name == "exchange.sharding" || name == "exchange.parameter_wire" || name == "exchange.reshard_after_forward");
}

void ExchangeConfig::check_values() const {
  MethodConfig::check_values();
  const bool scatters = method().supports_zero2 && method().supports_zero2(options());
  check(!means_stay_with_owners(sharding) || scatters, name(), ": sharding ", text("sharding"),
        " needs an exchange that can leave each mean with its owner, and ",
        name() == "dense" ? "dense in int8" : name(),
        " gives it to every rank; use sharding zero1, or the exchange dense (f32, bf16, f16), loco or zeropp");
  check(parameter_wire == ParameterWire::f32 || sharding != Sharding::none, name(), ": parameter_wire ",
        text("parameter_wire"), " applies to sharded parameters only, and sharding is none; use zero1, zero2, ",
        "zero3 or hybrid, or set exchange.parameter_wire=f32");
  check(reshard_after_forward || shards_parameters(sharding) || sharding == Sharding::automatic, name(),
        ": reshard_after_forward=false is for sharded parameters, but sharding is ", text("sharding"),
        "; use zero3 or hybrid, or leave it out");
  if (sharding == Sharding::hybrid) check_hybrid_block_size(name(), block_size());
  else
    check(
        shard_unit().value_or(0) >= 0, name(), ": block_size ", block_size(),
        " is one block for the whole model; with parameter_wire int8, use a number of values, or 0 for one block per ",
        "parameter");
}

void check_hybrid_block_size(const std::string& method, int64_t block_size) {
  check(block_size >= 0, method, ": block_size ", block_size, " is one block for the whole model, of which sharding ",
        "hybrid gives each worker a part; use a number of values, or 0 for one block per parameter");
}

std::unique_ptr<Exchange> make_exchange(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm,
                                        uint64_t seed) {
  config.check_values();
  check(config.sharding != Sharding::automatic, kShardingNotChosen);
  // With hybrid, buckets are shards, and the ranks are those with the same shard.
  const Sharding sharding = config.sharding == Sharding::hybrid ? Sharding::none : config.sharding;
  return config.method().make(config.options(), {buckets, comm, seed, sharding});
}

}  // namespace godwit
