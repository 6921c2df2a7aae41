#include "optim/factory.h"

#include <algorithm>
#include <cmath>

#include "engine/nearest.h"
#include "optim/adafactor.h"
#include "optim/adam.h"
#include "optim/birder.h"
#include "optim/sgd.h"
#include "optim/softsign.h"

namespace godwit {
namespace {

const std::vector<std::string> kFeedback{"both", "worker", "server", "none"};
const std::vector<std::string> kQuantizers{"random", "sign"};
const std::vector<std::string> kCollectives{"h1ar", "all_gather"};
const std::vector<std::string> kMoments{"f32", "bf16"};
const std::vector<std::string> kErrors{"f32", "int8"};
const std::vector<std::string> kMasks{"none", "automatic"};

bool is_adam(const std::string& name) { return name == "adam" || name == "adamw" || name == "bert_adam"; }

bool reads(const OptimizerConfig& config, const std::string& key) {
  const auto keys = optimizer_keys(config.name);
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

void check_choice(const OptimizerConfig& config, const char* key, const std::string& value,
                  const std::vector<std::string>& choices) {
  check(!reads(config, key) || std::find(choices.begin(), choices.end(), value) != choices.end(), config.name, ": ",
        key, " '", value, "' is unknown", suggestion(value, choices));
}

// A decay factor of a moving average.
void check_factor(const OptimizerConfig& config, const char* key, double value) {
  check(!reads(config, key) || (value >= 0 && value < 1 && static_cast<float>(value) < 1), config.name, ": ", key,
        " must be at least 0 and below 1, not ", value);
}

void check_values(const OptimizerConfig& config) {
  check(std::isfinite(static_cast<float>(config.lr)) && config.lr >= 0, config.name,
        ": lr must be finite and not negative, not ", config.lr);
  check(std::isfinite(static_cast<float>(config.weight_decay)) && config.weight_decay >= 0, config.name,
        ": weight_decay must be finite and not negative, not ", config.weight_decay);
  check_factor(config, "momentum", config.momentum);
  check_factor(config, "beta1", config.beta1);
  check_factor(config, "beta2", config.beta2);
  check_factor(config, "beta", config.beta);
  // As float32 it divides where a gradient was always 0.
  check(!reads(config, "eps") || (std::isfinite(static_cast<float>(config.eps)) && static_cast<float>(config.eps) > 0),
        config.name, ": eps must be positive and finite as float32, not ", config.eps);
  check(!reads(config, "decay_exponent") || (config.decay_exponent > 0 && config.decay_exponent <= 1), config.name,
        ": decay_exponent must be in (0, 1], not ", config.decay_exponent);
  check(!reads(config, "clip_update") || (std::isfinite(config.clip_update) && config.clip_update > 0), config.name,
        ": clip_update must be positive and finite, not ", config.clip_update);
  check(!config.nesterov || !reads(config, "nesterov") || config.momentum > 0, config.name,
        ": nesterov needs a momentum above 0");
  check_choice(config, "error_feedback", config.error_feedback, kFeedback);
  check_choice(config, "quantizer", config.quantizer, kQuantizers);
  check_choice(config, "collective", config.collective, kCollectives);
  check_choice(config, "moments", config.moments, kMoments);
  check_choice(config, "errors", config.errors, kErrors);
  check_choice(config, "mask", config.mask, kMasks);
  check(!reads(config, "t0") || config.t0 >= 0, config.name, ": t0 must not be negative, it is ", config.t0);
  check(!reads(config, "quantizer") || config.quantizer != "sign" || config.error_feedback == "both" ||
            config.error_feedback == "worker",
        config.name, ": quantizer 'sign' needs the workers' error feedback (both or worker), error_feedback is '",
        config.error_feedback, "': parameters without a gradient would drift by −lr every step");
}

}  // namespace

std::vector<std::string> optimizer_names() {
  return {"sgd", "sgdm", "adam", "adamw", "bert_adam", "adafactor", "softsignsgd", "birder", "binsgdm"};
}

std::vector<std::string> optimizer_keys(const std::string& name) {
  const std::vector<std::string> names = optimizer_names();
  check(std::find(names.begin(), names.end(), name) != names.end(), "optimizer '", name, "' is unknown",
        suggestion(name, names));
  std::vector<std::string> keys{"name", "lr", "weight_decay", "decay_norm_and_bias"};
  const auto add = [&](std::initializer_list<const char*> more) { keys.insert(keys.end(), more.begin(), more.end()); };
  if (name == "sgdm") add({"momentum", "nesterov"});
  if (is_adam(name)) add({"beta1", "beta2", "eps"});
  if (name == "adafactor") add({"eps", "decay_exponent", "clip_update", "relative"});
  if (name == "softsignsgd") add({"beta", "eps"});
  if (communicates_itself(name)) 
    add({"beta", "eps", "error_feedback", "quantizer", "collective", "t0", "moments", "errors", "mask", "frozen"});
  return keys;
}

OptimizerConfig optimizer_defaults(const std::string& name) {
  optimizer_keys(name);  // throws for an unknown name
  OptimizerConfig config;
  config.name = name;
  if (name == "sgd" || name == "sgdm") {
    config.lr = 0.1;
    config.weight_decay = 5e-4;
  } else if (name == "adam") {
    config.lr = 1e-3;
  } else if (name == "adafactor") {
    config.lr = 0.01;
    config.eps = 1e-30;
  } else if (name == "bert_adam") {
    config.lr = 1e-4;
    config.weight_decay = 0.01;
    config.decay_norm_and_bias = false;
    config.eps = 1e-6;
  } else {
    config.lr = 5e-3;
    config.weight_decay = 0.05;
  }
  return config;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const Buckets& buckets,
                                          const Communicator& comm, uint64_t seed, std::unique_ptr<Exchange> exchange) {
  const std::string& name = config.name;
  optimizer_keys(name);  // throws for an unknown name
  check_values(config);
  if (communicates_itself(name)) {
    check(exchange == nullptr, name, ": sends signs itself and takes no exchange");
    return std::make_unique<Birder>(config, buckets, comm, seed);
  }
  check(exchange != nullptr, name, ": needs an exchange that averages the gradients");
  if (name == "sgd" || name == "sgdm") return std::make_unique<Sgd>(config, buckets, std::move(exchange));
  if (is_adam(name)) return std::make_unique<Adam>(config, buckets, std::move(exchange));
  if (name == "adafactor") return std::make_unique<Adafactor>(config, buckets, std::move(exchange));
  return std::make_unique<SoftSignSgd>(config, buckets, std::move(exchange));
}

bool communicates_itself(const std::string& name) { return name == "birder" || name == "binsgdm"; }

bool needs_whole_parameters(const std::string& name) { return name == "adafactor" || name == "lamb"; }

}  // namespace godwit
