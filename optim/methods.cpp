// All optimizers. An entry NAME stands for the function NAME_method(), which the optimizer's source defines.
#include "optim/method.h"

#define GODWIT_OPTIMIZERS(METHOD) \
  METHOD(sgd)                     \
  METHOD(sgdm)                    \
  METHOD(adam)                    \
  METHOD(adamw)                   \
  METHOD(bert_adam)               \
  METHOD(adafactor)               \
  METHOD(softsignsgd)             \
  METHOD(birder)                  \
  METHOD(one_bit_adam)            \
  METHOD(zero_one_adam)           \
  METHOD(lamb)                    \
  METHOD(one_bit_lamb)

namespace godwit {

#define METHOD(name) const OptimizerMethod& name##_method();
GODWIT_OPTIMIZERS(METHOD)
#undef METHOD

template <>
std::vector<const OptimizerMethod*>& methods<OptimizerMethod>() {
#define METHOD(name) &name##_method(),
  static std::vector<const OptimizerMethod*> all{GODWIT_OPTIMIZERS(METHOD)};
#undef METHOD
  return all;
}

void check_sharding(const OptimizerConfig& config, Sharding sharding) {
  const bool divides = sharding > Sharding::none && sharding != Sharding::hybrid;
  check(!config.method().communicates_itself || !divides, "exchange.sharding: ", config.name(), kOnlyHybrid);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, OptimizerInputs inputs) {
  const OptimizerMethod& method = config.method();
  config.check_values();
  check(!method.communicates_itself || inputs.exchange == nullptr, method.name,
        ": communicates itself and takes no exchange");
  check(method.communicates_itself || inputs.exchange != nullptr, method.name,
        ": needs an exchange that averages the gradients");
  return method.make(config.options(), std::move(inputs));
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const std::string& json, OptimizerInputs inputs) {
  return make_optimizer(OptimizerConfig(name, json), std::move(inputs));
}

OptimizerConfig for_run(OptimizerConfig config, const Schedule& schedule, int64_t steps) {
  config.check_values();
  if (config.method().fit) config.method().fit(config.options(), schedule, steps);
  return config;
}

}  // namespace godwit
