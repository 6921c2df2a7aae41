// Exchanges by name. Each exchange is described in its source file; comm/exchange/methods.cpp lists them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/buckets/sharding.h"
#include "comm/exchange/exchange.h"
#include "engine/method.h"

namespace godwit {

// Where the compression error is kept and added in the next step: at the sender, at the owner of a mean, or at both.
enum class ErrorFeedback { both, worker, server, none };
inline std::vector<std::string> choices_of(ErrorFeedback) { return {"both", "worker", "server", "none"}; }
// Whether senders keep the compression error.
inline bool at_worker(ErrorFeedback f) { return f == ErrorFeedback::both || f == ErrorFeedback::worker; }
// Whether owners keep the compression error.
inline bool at_server(ErrorFeedback f) { return f == ErrorFeedback::both || f == ErrorFeedback::server; }

// Error message if an exchange or a DataParallel is created with sharding auto.
inline constexpr const char* kShardingNotChosen =
    "exchange: sharding is auto, which only the training programs replace by a choice; set none, zero1, zero2, zero3 "
    "or hybrid";

// Arguments that create an exchange, in addition to its options. References are used only during the call.
struct ExchangeInputs {
  const Buckets& buckets;              // the gradients
  const Communicator& comm;            // the ranks
  uint64_t seed = 1;                   // key of stochastic rounding
  Sharding sharding = Sharding::none;  // see ExchangeConfig
};

// An exchange that a user selects by name: its description, its default options and its constructor.
struct ExchangeMethod {
  static constexpr const char* kKind = "exchange";    // name of the kind, for messages
  std::string name;                                   // name in configurations
  std::vector<std::string> aliases = {};              // alternative names
  std::string help;                                   // one line for --help
  std::string paper;                                  // source of the algorithm
  std::string bytes;                                  // data that a worker sends per step
  AnyOptions defaults;                                // an options struct with default values
  Sharding sharding = Sharding::none;                 // default; see ExchangeConfig
  ParameterWire parameter_wire = ParameterWire::f32;  // default; see ExchangeConfig
  // Whether the exchange can leave each mean with its owner (zero2, zero3). Null: the exchange cannot do this.
  bool (*supports_zero2)(const AnyOptions& options) = nullptr;
  bool mean_is_signs = false;  // whether all means are ±1, so that clip.norm only scales the learning rate; refused
  bool zero2_shards_are_blocks = false;  // whether shards consist of whole blocks of block_size under zero2 and zero3
  std::unique_ptr<Exchange> (*make)(const AnyOptions& options, const ExchangeInputs& inputs);  // creates the exchange
  // Returns warnings about the options, one line each. Null: no warnings.
  std::vector<std::string> (*notices)(const AnyOptions& options) = nullptr;
};
// All exchanges: those listed in comm/exchange/methods.cpp and those that a program appends.
template <>
std::vector<const ExchangeMethod*>& methods<ExchangeMethod>();

// An exchange with its options, and the sharding of state and parameters. Converts from a name ("topk") and from the
// options struct of an exchange (TopKOptions{.density = 0.001}).
class ExchangeConfig : public MethodConfig<ExchangeMethod> {
 public:
  using MethodConfig::MethodConfig;
  // Like MethodConfig(name, json); json may also set sharding and parameter_wire.
  ExchangeConfig(const std::string& name, const std::string& json);

  // - zero1: every rank receives the whole mean, but keeps optimizer state only for its shard and updates only this
  //   shard. The updated parameters are then all-gathered in the type parameter_wire.
  // - zero2: like zero1, but a rank receives only the mean of its shard.
  // - zero3: each rank keeps its shard of the parameters. The parameters are gathered for the forward and the backward
  //   pass.
  // - hybrid: zero3 over the workers of each node. The exchange is between workers with the same shard, one per node.
  Sharding sharding = method().sharding;
  ParameterWire parameter_wire = method().parameter_wire;  // type of sharded parameters on the network
  // For zero3 and hybrid: releases parameters after the forward pass and gathers them again in the backward pass.
  bool reshard_after_forward = true;

  int64_t block_size() const;  // values per scale, also for 8-bit parameters; 1024 if the exchange has no such option
  // Shards must consist of whole blocks of this many values of a parameter. 0: shards consist of whole parameters.
  // nullopt: shards may consist of any values.
  std::optional<int64_t> shard_unit() const;
  // Whether an optimizer that communicates without an exchange reads the option `name`, such as "exchange.sharding".
  // True for the sharding options if the sharding is hybrid, or auto, which may become hybrid.
  bool hybrid_reads(const std::string& name) const;
  // Throws if a value is out of range, or if the exchange does not support the sharding.
  void check_values() const;

 protected:
  void add_common(OptionList& list) const override;  // sharding, parameter_wire, reshard_after_forward
};

// Throws if block_size is negative. A negative size means one block for the whole model, but with sharding hybrid a
// worker has only a part of the model. `method` is the name of the optimizer or exchange.
void check_hybrid_block_size(const std::string& method, int64_t block_size);

// Creates the exchange. References are used only during the call. Throws like check_values().
std::unique_ptr<Exchange> make_exchange(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm,
                                        uint64_t seed);

}  // namespace godwit
