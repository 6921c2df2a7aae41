// Optimizers by name, with every setting a user can give.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace godwit {

// One struct for all; optimizer_keys() says which fields a method reads. Field names are the configuration keys.
struct OptimizerConfig {
  std::string name;
  double lr = 0;
  double weight_decay = 0;            // L2 for sgd, sgdm, adam; decoupled for the others
  bool decay_norm_and_bias = true;    // false: none on batch-norm parameters and biases
  double momentum = 0.9;              // sgdm
  bool nesterov = false;              // sgdm
  double beta1 = 0.9, beta2 = 0.999;  // adam, adamw, bert_adam
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
bool communicates_itself(const std::string& name);  // birder: takes no Exchange
// An update of a parameter reads all of it, so under sharding one rank owns the whole parameter.
bool needs_whole_parameters(const std::string& name);

}  // namespace godwit
