// Optimizers by name. Each optimizer is described in its source file; optim/methods.cpp lists them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/buckets/sharding.h"
#include "engine/method.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace godwit {

// Arguments that create an optimizer, in addition to its options. References are used only during the call.
struct OptimizerInputs {
  const Buckets& buckets;                   // parameters and gradients
  const Communicator& comm;                 // the ranks
  uint64_t seed = 1;                        // key of stochastic rounding
  std::unique_ptr<Exchange> exchange = {};  // null if the optimizer communicates itself
};

// An optimizer that a user selects by name: its description, its default options and its constructor.
struct OptimizerMethod {
  static constexpr const char* kKind = "optimizer";  // name of the kind, for messages
  std::string name;  // name in configurations
  std::vector<std::string> aliases = {};  // alternative names
  std::string help;   // one line for --help
  std::string paper;  // source of the algorithm
  std::string bytes;  // data that a worker sends per step
  AnyOptions defaults;  // must have at least the option lr
  bool communicates_itself = false;     // whether the optimizer communicates without an Exchange
  // Whether one rank must own all of a parameter under sharding. Null: no.
  bool (*needs_whole_parameters)(const AnyOptions& options) = nullptr;
  bool relative_lr = false;  // whether the norm of an update is lr times the norm of its parameter
  // Whether weight_decay is added to the gradient. The same value then has another effect than as decoupled decay.
  bool l2_regularization = false;
  std::unique_ptr<Optimizer> (*make)(const AnyOptions& options, OptimizerInputs inputs);  // creates the optimizer
  // Adapts the options to a run of `steps` steps. Throws if the run is too short for the optimizer, or if the optimizer
  // cannot use a learning rate of the schedule. Null: the options do not depend on the run.
  void (*fit)(AnyOptions& options, const Schedule& schedule, int64_t steps) = nullptr;
  // Returns warnings about the adapted options, one line each. Null: no warnings.
  std::vector<std::string> (*notices)(const AnyOptions& options, int64_t steps) = nullptr;
  std::string divergence_hint = {};  // remedies for a non-finite loss, in addition to a lower learning rate
};

// An optimizer and its options:  Birder::Options{.lr = 0.01}, "birder", {"birder", R"({"lr": 0.01})"}.
using OptimizerConfig = MethodConfig<OptimizerMethod>;
// All optimizers: those listed in optim/methods.cpp and those that a program appends.
template <>
std::vector<const OptimizerMethod*>& methods<OptimizerMethod>();

// Adds the options that all optimizers have: lr, weight_decay and decay_norm_and_bias.
template <class Options>
void describe_common(Options& o, OptionList& list, const std::string& decay_help = "decoupled weight decay") {
  list.add("lr", o.lr, "learning rate", {.min = 0, .max = kInfinity, .as_float = true});
  list.add("weight_decay", o.weight_decay, decay_help, {.min = 0, .max = kInfinity, .as_float = true});
  list.add("decay_norm_and_bias", o.decay_norm_and_bias, "also decay normalization parameters and biases");
}

// OptimizerMethod::make for an optimizer that uses an exchange.
template <class T>
std::unique_ptr<Optimizer> make_with_exchange(const AnyOptions& options, OptimizerInputs inputs) {
  return std::make_unique<T>(options.as<typename T::Options>(), inputs.buckets, std::move(inputs.exchange));
}
// OptimizerMethod::make for an optimizer that communicates itself.
template <class T>
std::unique_ptr<Optimizer> make_communicating(const AnyOptions& options, OptimizerInputs inputs) {
  return std::make_unique<T>(options.as<typename T::Options>(), inputs.buckets, inputs.comm);
}
// End of a message about an optimizer that communicates itself. The message begins with the optimizer's name.
inline constexpr const char* kOnlyHybrid =
    " keeps state of all parameters on every rank, which only hybrid divides; leave exchange.sharding out, use hybrid, "
    "or use an optimizer with an exchange, such as adamw";
inline constexpr const char* kExchangeBytes = "traffic of its exchange";  // for OptimizerMethod::bytes

// Throws if the optimizer communicates itself and the sharding is zero1, zero2 or zero3.
void check_sharding(const OptimizerConfig& config, Sharding sharding);
// Creates the optimizer. Throws if a value is out of range or `inputs.exchange` does not fit the method.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, OptimizerInputs inputs);
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const std::string& json, OptimizerInputs inputs);
// Returns the options after OptimizerMethod::fit.
OptimizerConfig for_run(OptimizerConfig config, const Schedule& schedule, int64_t steps);

}  // namespace godwit
