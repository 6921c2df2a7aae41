// Optimizers by name, with every setting a user can give.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace godwit {

// One struct for all; optimizer_keys() says which fields a method reads. Field names are the configuration keys.
struct OptimizerConfig {
  std::string name;
  double lr = 0;
  double weight_decay = 0;            // L2 for sgd, sgdm, adam; decoupled for the others
  bool decay_norm_and_bias = true;    // false: none on batch-norm parameters and biases
  double momentum = 0.9;              // sgdm
  bool nesterov = false;              // sgdm
  double beta1 = 0.9, beta2 = 0.999;  // the Adam and LAMB families
  double beta = 0.95;                 // softsignsgd, birder
  double eps = 1e-8;
  double decay_exponent = 0.8;  // adafactor: beta2 = 1 - t^-decay_exponent
  double clip_update = 1;       // adafactor: largest root mean square of a parameter's update before lr
  bool relative = true;         // adafactor: lr is relative to the parameter's root mean square
  std::string error_feedback = "both";  // birder: both, worker, server, none
  std::string quantizer = "random";     // birder: random, sign
  std::string collective = "h1ar";      // birder: h1ar, all_gather (the naive one, to compare with)
  long long t0 = 0;                     // birder: b becomes max(b, b̂) after step t0; 0 = never
  std::string moments = "f32";          // birder: f32, bf16: how m and b are kept
  std::string errors = "f32";           // birder: f32, int8: how e and ē are kept
  std::string mask = "none";            // birder: none, automatic: what never had a gradient does not move
  std::string frozen = "";              // birder: names of parameters that do not move, separated by commas

  // one_bit_adam, zero_one_adam, one_bit_lamb
  std::string sign_scale = "l1_mean";  // of a block's signs: l1_mean, l2_rms
  long long block_size = 4096;         // values that share a scale; 0: a parameter's; -1: all that a rank sends
  double warmup_fraction = 0;          // T_w as a part of the run; for_run() makes warmup_steps of it
  long long warmup_steps = 0;          // T_w, when not 0
  bool bias_correction = false;        // one_bit_adam, lamb
  bool keep_local_momentum = false;    // one_bit_adam: momentum goes on from a rank's own, not from the agreed one
  // zero_one_adam: see optim/sync_schedule.h
  std::string intervals = "doubling";  // of T_u, after the warm-up: doubling, fixed
  long long max_interval = 16;         // H
  long long doubling_steps = 0;        // K; 0: as many as the warm-up has
  long long kappa = 16;                // of T_v
  long long variance_interval = 0;     // of T_v, fixed; 0: kappa's growing ones
  long long freeze_step = 0;           // last step of T_v; 0: the first interval of more than one step ends it
  // lamb, one_bit_lamb
  double min_coeff = 0.01, max_coeff = 10;  // of ‖x‖/‖r‖
  double coeff_beta = 0.9;                  // one_bit_lamb: average of the warm-up's coefficients
  double factor_min = 0.5, factor_max = 4;  // one_bit_lamb: of what a coefficient is multiplied by after it,
  double factor_threshold = 0.1;            // and the part of it that a step may change
};

std::vector<std::string> optimizer_names();  // sgd sgdm adam adamw bert_adam softsignsgd birder …
std::vector<std::string> optimizer_keys(const std::string& name);
// The Birder paper's settings for ResNet-20 with a global batch of 128 (appendix B.1; adam: PyTorch's; bert_adam:
// those BERT was pre-trained with); throws for an unknown name.
OptimizerConfig optimizer_defaults(const std::string& name);

// Throws for values a method cannot use (lr not finite or negative, beta outside [0, 1), …). `seed` drives stochastic
// quantisers. `exchange` is null for methods that communicate themselves. References are read only during the call.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const Buckets& buckets,
                                          const Communicator& comm, uint64_t seed, std::unique_ptr<Exchange> exchange);
bool communicates_itself(const std::string& name);  // birder, one_bit_adam, …: takes no Exchange
// For a run of so many steps: warmup_fraction becomes warmup_steps. Throws when the run is too short for the method, or
// when the schedule has a rate that it cannot use.
OptimizerConfig for_run(const OptimizerConfig& config, const Schedule& schedule, int64_t steps);
std::vector<std::string> interval_names();
// An update of a parameter reads all of it, so under sharding one rank owns the whole parameter.
bool needs_whole_parameters(const std::string& name);

}  // namespace godwit
