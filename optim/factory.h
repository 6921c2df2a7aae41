// Optimizers by name, and their options.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace godwit {

// Options of all optimizers; optimizer_keys() lists the fields that an optimizer reads. Field names are the
// configuration keys.
struct OptimizerConfig {
  std::string name;
  double lr = 0;
  double weight_decay = 0;            // L2 for sgd, sgdm, adam; decoupled for the others
  bool decay_norm_and_bias = true;    // false: no decay of batch-norm parameters and biases
  double momentum = 0.9;              // sgdm
  bool nesterov = false;              // sgdm
  double beta1 = 0.9, beta2 = 0.999;  // Adam and LAMB families
  double beta = 0.95;                 // softsignsgd, birder
  double eps = 1e-8;
  double decay_exponent = 0.8;  // adafactor: beta2 = 1 - t^-decay_exponent
  double clip_update = 1;       // adafactor: limit of the root mean square of a parameter's update, before lr
  bool relative = true;         // adafactor: multiply lr by the parameter's root mean square
  std::string error_feedback = "both";  // birder: both, worker, server, none
  std::string quantizer = "random";     // birder: random, sign
  std::string collective = "h1ar";      // birder: h1ar, all_gather (the naive one, for comparison)
  long long t0 = 0;                     // birder: b becomes max(b, b̂) after step t0; 0 = never
  std::string moments = "f32";          // birder: storage of m and b: f32, bf16
  std::string errors = "f32";           // birder: storage of e and ē: f32, int8
  std::string mask = "none";            // birder: none, automatic: freeze parameters that have never had a gradient
  std::string frozen = "";              // birder: comma-separated names of parameters to freeze

  // one_bit_adam, zero_one_adam, one_bit_lamb
  std::string sign_scale = "l1_mean";  // scale of a block's signs: l1_mean, l2_rms
  long long block_size = 4096;         // values per scale; 0: one per parameter; -1: one for all that a rank sends
  double warmup_fraction = 0;          // T_w as a fraction of the run; for_run() converts it to warmup_steps
  long long warmup_steps = 0;          // T_w, if not 0
  bool bias_correction = false;        // one_bit_adam, lamb
  bool keep_local_momentum = false;    // one_bit_adam: continue from the rank's own momentum, not the averaged one
  // zero_one_adam: see optim/sync_schedule.h
  std::string intervals = "doubling";  // T_u after the warm-up: doubling, fixed
  long long max_interval = 16;         // H
  long long doubling_steps = 0;        // K; 0: the length of the warm-up
  long long kappa = 16;                // T_v: kappa
  long long variance_interval = 0;     // T_v: fixed interval; 0: intervals that grow with kappa
  long long freeze_step = 0;           // last step of T_v; 0: T_v ends at the first T_u interval above one step
  // lamb, one_bit_lamb
  double min_coeff = 0.01, max_coeff = 10;  // limits of ‖x‖/‖r‖
  double coeff_beta = 0.9;                  // one_bit_lamb: decay of the warm-up's average coefficient
  double factor_min = 0.5, factor_max = 4;  // one_bit_lamb: limits of the factor on a coefficient after the warm-up,
  double factor_threshold = 0.1;            // and of its relative change per step
};

std::vector<std::string> optimizer_names();  // sgd sgdm adam adamw bert_adam softsignsgd birder …
std::vector<std::string> optimizer_keys(const std::string& name);  // configuration keys; throws for an unknown name
// The Birder paper's settings for ResNet-20 with a global batch of 128 (appendix B.1). Exceptions: PyTorch's for adam,
// those of BERT's pre-training for bert_adam. Throws for an unknown name.
OptimizerConfig optimizer_defaults(const std::string& name);

// Throws for values that the optimizer cannot use (lr not finite or negative, beta outside [0, 1), …). `seed` keys
// stochastic rounding. `exchange` must be null if communicates_itself(). References are used only during the call.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const Buckets& buckets,
                                          const Communicator& comm, uint64_t seed, std::unique_ptr<Exchange> exchange);
bool communicates_itself(const std::string& name);  // birder, one_bit_adam, …: uses no Exchange
// Fits a configuration to a run of `steps` steps: converts warmup_fraction to warmup_steps. Throws if the run is too
// short for the optimizer, or if it cannot use a learning rate of the schedule.
OptimizerConfig for_run(const OptimizerConfig& config, const Schedule& schedule, int64_t steps);
std::vector<std::string> interval_names();
// An update reads whole parameters, so under sharding one rank must own all of a parameter.
bool needs_whole_parameters(const std::string& name);

}  // namespace godwit
