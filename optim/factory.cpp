#include "optim/factory.h"

#include <algorithm>
#include <cmath>

#include "engine/did_you_mean.h"
#include "optim/adafactor.h"
#include "optim/adam.h"
#include "optim/birder.h"
#include "optim/lamb.h"
#include "optim/one_bit_adam.h"
#include "optim/one_bit_lamb.h"
#include "optim/sgd.h"
#include "optim/softsign.h"
#include "optim/zero_one_adam.h"

namespace godwit {
namespace {

const std::vector<std::string> kFeedback{"both", "worker", "server", "none"};
const std::vector<std::string> kQuantizers{"random", "sign"};
const std::vector<std::string> kCollectives{"h1ar", "all_gather"};
const std::vector<std::string> kMoments{"f32", "bf16"};
const std::vector<std::string> kErrors{"f32", "int8"};
const std::vector<std::string> kMasks{"none", "automatic"};

bool is_adam(const std::string& name) { return name == "adam" || name == "adamw" || name == "bert_adam"; }

bool is_birder(const std::string& name) { return name == "birder" || name == "binsgdm"; }
bool has_warmup(const std::string& name) {
  return name == "one_bit_adam" || name == "zero_one_adam" || name == "one_bit_lamb";
}

bool reads(const OptimizerConfig& config, const std::string& key) {
  const auto keys = optimizer_keys(config.name);
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

void check_choice(const OptimizerConfig& config, const char* key, const std::string& value,
                  const std::vector<std::string>& choices) {
  check(!reads(config, key) || std::find(choices.begin(), choices.end(), value) != choices.end(), config.name, ": ",
        key, " '", value, "' is unknown", suggestion(value, choices));
}

// Checks the decay rate of a moving average.
void check_factor(const OptimizerConfig& config, const char* key, double value) {
  check(!reads(config, key) || (value >= 0 && value < 1 && static_cast<float>(value) < 1), config.name, ": ", key,
        " must be at least 0 and below 1, not ", value);
}

void check_at_least(const OptimizerConfig& config, const char* key, long long value, long long least) {
  check(!reads(config, key) || value >= least, config.name, ": ", key, " must be at least ", least, ", not ", value);
}

void check_warmup(const OptimizerConfig& config) {
  if (!has_warmup(config.name)) return;
  check_at_least(config, "warmup_steps", config.warmup_steps, 0);
  check(config.warmup_fraction >= 0 && config.warmup_fraction <= 1, config.name,
        ": warmup_fraction must be in [0, 1], not ", config.warmup_fraction);
  check_choice(config, "sign_scale", config.sign_scale, sign_scale_names());
  check_at_least(config, "block_size", config.block_size, -1);
  check_choice(config, "intervals", config.intervals, interval_names());
  check_at_least(config, "max_interval", config.max_interval, 1);
  check_at_least(config, "doubling_steps", config.doubling_steps, 0);
  check_at_least(config, "kappa", config.kappa, 1);
  check_at_least(config, "variance_interval", config.variance_interval, 0);
  check_at_least(config, "freeze_step", config.freeze_step, 0);
}

void check_lamb(const OptimizerConfig& config) {
  const bool known = reads(config, "factor_min");
  check(!reads(config, "min_coeff") || (config.min_coeff >= 0 && config.min_coeff <= config.max_coeff &&
                                        std::isfinite(config.max_coeff) && config.max_coeff > 0),
        config.name, ": min_coeff and max_coeff must be a range of finite numbers from 0 on, not ", config.min_coeff,
        " and ", config.max_coeff);
  check_factor(config, "coeff_beta", config.coeff_beta);
  check(!known || (config.factor_min > 0 && config.factor_min <= 1 && config.factor_max >= 1 &&
                   std::isfinite(config.factor_max)),
        config.name, ": factor_min and factor_max must be a range around 1, above 0, not ", config.factor_min, " and ",
        config.factor_max);
  check(!known || (config.factor_threshold >= 0 && config.factor_threshold < 1), config.name,
        ": factor_threshold must be at least 0 and below 1, not ", config.factor_threshold);
}

// For optimizers with a warm-up: here it must be given in steps; a fraction needs the length of the run.
void check_warmup_given(const OptimizerConfig& config) {
  check(!has_warmup(config.name) || config.warmup_steps > 0 || config.warmup_fraction == 0, config.name,
        ": warmup_fraction ", config.warmup_fraction,
        " is of a run whose length is not known; set warmup_steps, or let ", "for_run() do so");
  check(config.warmup_steps > 0 || (config.name != "one_bit_adam" && config.name != "one_bit_lamb"), config.name,
        ": needs a warm-up, in which the variance forms; set warmup_steps or warmup_fraction");
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
  // Must be positive as float32, since it is the divisor for parameters that never had a gradient.
  check(!reads(config, "eps") || (std::isfinite(static_cast<float>(config.eps)) && static_cast<float>(config.eps) > 0),
        config.name, ": eps must be positive and finite as float32, not ", config.eps);
  check(!reads(config, "decay_exponent") || (config.decay_exponent > 0 && config.decay_exponent <= 1), config.name,
        ": decay_exponent must be in (0, 1], not ", config.decay_exponent);
  check(!reads(config, "clip_update") || (std::isfinite(config.clip_update) && config.clip_update > 0), config.name,
        ": clip_update must be positive and finite, not ", config.clip_update);
  check(!config.nesterov || !reads(config, "nesterov") || config.momentum > 0, config.name,
        ": nesterov needs a momentum above 0");
  check_warmup(config);
  check_lamb(config);
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
  return {"sgd", "sgdm", "adam", "adamw", "bert_adam", "adafactor", "softsignsgd", "birder", "binsgdm",
          "one_bit_adam", "zero_one_adam", "lamb", "one_bit_lamb"};
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
  if (has_warmup(name)) add({"beta1", "beta2", "eps", "warmup_fraction", "warmup_steps", "sign_scale", "block_size"});
  if (name == "one_bit_adam") add({"bias_correction", "keep_local_momentum"});
  if (name == "zero_one_adam")
    add({"intervals", "max_interval", "doubling_steps", "kappa", "variance_interval", "freeze_step"});
  if (name == "lamb") add({"beta1", "beta2", "eps", "bias_correction"});
  if (name == "lamb" || name == "one_bit_lamb") add({"min_coeff", "max_coeff"});
  if (name == "one_bit_lamb") add({"coeff_beta", "factor_min", "factor_max", "factor_threshold"});
  if (is_birder(name))
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
  } else if (name == "one_bit_adam") {
    config.lr = 1e-3;
    config.weight_decay = 1e-4;
    config.warmup_fraction = 0.15;
  } else if (name == "zero_one_adam") {
    config.lr = 5e-4;
    config.weight_decay = 1e-4;
    config.eps = 1e-16;
    config.warmup_fraction = 0.11;
  } else if (name == "lamb" || name == "one_bit_lamb") {
    config.lr = 0.01;
    config.weight_decay = 0.01;
    config.eps = 1e-6;
    config.bias_correction = name == "lamb";
    config.warmup_fraction = name == "lamb" ? 0 : 0.15;
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
    check_warmup_given(config);
    if (name == "one_bit_adam") return std::make_unique<OneBitAdam>(config, buckets, comm);
    if (name == "zero_one_adam") return std::make_unique<ZeroOneAdam>(config, buckets, comm);
    if (name == "one_bit_lamb") return std::make_unique<OneBitLamb>(config, buckets, comm);
    return std::make_unique<Birder>(config, buckets, comm, seed);
  }
  check(exchange != nullptr, name, ": needs an exchange that averages the gradients");
  if (name == "sgd" || name == "sgdm") return std::make_unique<Sgd>(config, buckets, std::move(exchange));
  if (is_adam(name)) return std::make_unique<Adam>(config, buckets, std::move(exchange));
  if (name == "adafactor") return std::make_unique<Adafactor>(config, buckets, std::move(exchange));
  if (name == "lamb") return std::make_unique<Lamb>(config, buckets, std::move(exchange));
  return std::make_unique<SoftSignSgd>(config, buckets, std::move(exchange));
}

bool communicates_itself(const std::string& name) { return is_birder(name) || has_warmup(name); }

bool needs_whole_parameters(const std::string& name) { return name == "adafactor" || name == "lamb"; }

OptimizerConfig for_run(const OptimizerConfig& given, const Schedule& schedule, int64_t steps) {
  OptimizerConfig config = given;
  if (!has_warmup(config.name)) return config;
  check_values(config);
  if (config.warmup_steps == 0)
    config.warmup_steps = std::llround(config.warmup_fraction * static_cast<double>(steps));
  const bool freezes = config.name != "zero_one_adam";  // compression starts when the warm-up ends
  if (given.warmup_steps == 0 && given.warmup_fraction > 0)
    config.warmup_steps = std::max<long long>(config.warmup_steps, 1);
  check(freezes ? config.warmup_steps < steps : config.warmup_steps <= steps, config.name, ": a warm-up of ",
        config.warmup_steps, " steps leaves nothing to ", freezes ? "compress" : "skip", " of a run of ", steps,
        "; lower optimizer.warmup_steps or optimizer.warmup_fraction, or train longer");
  if (freezes) return config;
  for (const int64_t step : {int64_t{1}, steps})
    check(static_cast<float>(schedule.lr(step)) > 0, config.name, ": the learning rate of step ", step, " of ", steps,
          " is ", schedule.lr(step), "; momentum is recovered by dividing by it, so it must be positive: set ",
          "--lr and schedule.final_fraction above 0");
  check(config.freeze_step < steps, config.name, ": freeze_step ", config.freeze_step, " is not below the run's ",
        steps, " steps, so the variance would never be frozen; lower it");
  return config;
}

std::vector<std::string> interval_names() { return {"doubling", "fixed"}; }

}  // namespace godwit
