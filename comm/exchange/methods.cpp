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
  list.add("sharding", self.sharding, "what is sharded: zero1 the optimizer state, zero2 the gradients too");
  list.add("parameter_wire", self.parameter_wire, "type in which sharded parameters are sent");
}

int64_t ExchangeConfig::block_size() const {
  return has("block_size") ? static_cast<int64_t>(number("block_size")) : 1024;
}

bool ExchangeConfig::shards_are_blocks() const {
  return parameter_wire == ParameterWire::int8 || (sharding == Sharding::zero2 && method().zero2_shards_are_blocks);
}

void ExchangeConfig::check_values() const {
  MethodConfig::check_values();
  const bool scatters = method().supports_zero2 && method().supports_zero2(options());
  check(sharding != Sharding::zero2 || scatters, name(), ": sharding zero2 needs an exchange that can leave each mean ",
        "with its owner, and ", name() == "dense" ? "dense in int8" : name(),
        " gives it to every rank; use sharding zero1, or the exchange dense (f32, bf16, f16), loco or zeropp");
  check(parameter_wire == ParameterWire::f32 || sharding != Sharding::none, name(), ": parameter_wire ",
        text("parameter_wire"), " is that of sharded parameters, but sharding is none; use zero1 or zero2");
}

std::unique_ptr<Exchange> make_exchange(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm,
                                        uint64_t seed) {
  config.check_values();
  return config.method().make(config.options(), {buckets, comm, seed, config.sharding});
}

}  // namespace godwit
