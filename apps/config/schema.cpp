#include "apps/config/program.h"

#include <algorithm>

#include "comm/exchange/error_feedback_all_reduce.h"
#include "comm/exchange/exchange.h"
#include "comm/parallel/sharding.h"
#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/did_you_mean.h"

namespace godwit::apps {
namespace {

constexpr Range kFromMinusOne{-1, std::numeric_limits<double>::infinity()};
constexpr Range kBucket{1.0 / 1024, 1 << 20};

std::vector<std::string> devices() { return {"cpu", "cuda", "auto"}; }
std::vector<std::string> dtypes() { return {"f32", "bf16"}; }
std::vector<std::string> transports() { return {"auto", "local", "mpi"}; }
std::vector<std::string> error_feedbacks() { return {"both", "worker", "server", "none"}; }
std::vector<std::string> quantizers() { return {"random", "sign"}; }
std::vector<std::string> collectives() { return {"h1ar", "all_gather"}; }
std::vector<std::string> moments() { return {"f32", "bf16"}; }
std::vector<std::string> errors() { return {"f32", "int8"}; }
std::vector<std::string> non_finites() { return {"fail", "skip"}; }
std::vector<std::string> masks() { return {"none", "automatic"}; }

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }  // npos + 1 is 0

}  // namespace

#define GODWIT_AT(member) [](CommonConfig& c) -> SettingRef { return &c.member; }

std::vector<Setting> common_settings(const Wording& wording) {
  return {
      {"optimizer", "optimizer.name", "--optimizer", GODWIT_AT(optimizer.name), "see below", kAny, optimizer_names},
      {"optimizer", "optimizer.lr", "--lr", GODWIT_AT(optimizer.lr), "learning rate [the optimizer's]", kNotNegative},
      {"optimizer", "optimizer.weight_decay", "", GODWIT_AT(optimizer.weight_decay), "L2, or decoupled", kNotNegative},
      {"optimizer", "optimizer.decay_norm_and_bias", "", GODWIT_AT(optimizer.decay_norm_and_bias),
       "decay batch norm and biases too", kAny},
      {"optimizer", "optimizer.momentum", "", GODWIT_AT(optimizer.momentum), "sgdm", kBelowOne},
      {"optimizer", "optimizer.nesterov", "", GODWIT_AT(optimizer.nesterov), "sgdm: Nesterov's momentum", kAny},
      {"optimizer", "optimizer.beta1", "", GODWIT_AT(optimizer.beta1), "Adam family: mean of gradients", kBelowOne},
      {"optimizer", "optimizer.beta2", "", GODWIT_AT(optimizer.beta2), "Adam family: mean of squares", kBelowOne},
      {"optimizer", "optimizer.beta", "", GODWIT_AT(optimizer.beta), "softsignsgd, birder", kBelowOne},
      {"optimizer", "optimizer.eps", "", GODWIT_AT(optimizer.eps), "added to the denominator", kPositive},
      {"optimizer", "optimizer.error_feedback", "", GODWIT_AT(optimizer.error_feedback), "birder", kAny,
       error_feedbacks},
      {"optimizer", "optimizer.quantizer", "", GODWIT_AT(optimizer.quantizer), "birder", kAny, quantizers},
      {"optimizer", "optimizer.collective", "", GODWIT_AT(optimizer.collective), "birder", kAny, collectives},
      {"optimizer", "optimizer.decay_exponent", "", GODWIT_AT(optimizer.decay_exponent), "adafactor: beta2 = 1 - t^-this",
       Range{0, 1, true, false}},
      {"optimizer", "optimizer.clip_update", "", GODWIT_AT(optimizer.clip_update),
       "adafactor: largest root mean square of an update", kPositive},
      {"optimizer", "optimizer.relative", "", GODWIT_AT(optimizer.relative), "adafactor: lr times that of the parameter",
       kAny},
      {"optimizer", "optimizer.t0", "", GODWIT_AT(optimizer.t0), "birder: step after which b cannot shrink; 0: never",
       kNotNegative},
      {"optimizer", "optimizer.moments", "", GODWIT_AT(optimizer.moments), "birder: how m and b are kept", kAny,
       moments},
      {"optimizer", "optimizer.errors", "", GODWIT_AT(optimizer.errors), "birder: how errors are kept", kAny, errors},
      {"optimizer", "optimizer.mask", "", GODWIT_AT(optimizer.mask), "birder: what never had a gradient stays", kAny,
       masks},
      {"optimizer", "optimizer.frozen", "", GODWIT_AT(optimizer.frozen), "birder: parameters that stay, as a,b", kAny},
      {"optimizer", "optimizer.warmup_fraction", "", GODWIT_AT(optimizer.warmup_fraction),
       "one_bit_*: dense steps; zero_one_adam: no local ones", kFraction},
      {"optimizer", "optimizer.warmup_steps", "", GODWIT_AT(optimizer.warmup_steps), "the same, in steps, when not 0",
       kNotNegative},
      {"optimizer", "optimizer.sign_scale", "", GODWIT_AT(optimizer.sign_scale), "of a block's signs", kAny,
       sign_scale_names},
      {"optimizer", "optimizer.block_size", "", GODWIT_AT(optimizer.block_size),
       "values of a scale; 0: a parameter's; -1: all", kFromMinusOne},
      {"optimizer", "optimizer.bias_correction", "", GODWIT_AT(optimizer.bias_correction), "one_bit_adam, lamb", kAny},
      {"optimizer", "optimizer.keep_local_momentum", "", GODWIT_AT(optimizer.keep_local_momentum), "one_bit_adam",
       kAny},
      {"optimizer", "optimizer.intervals", "", GODWIT_AT(optimizer.intervals), "zero_one_adam: of local steps", kAny,
       interval_names},
      {"optimizer", "optimizer.max_interval", "", GODWIT_AT(optimizer.max_interval), "zero_one_adam: H", kAtLeastOne},
      {"optimizer", "optimizer.doubling_steps", "", GODWIT_AT(optimizer.doubling_steps),
       "zero_one_adam: K; 0: the warm-up's", kNotNegative},
      {"optimizer", "optimizer.kappa", "", GODWIT_AT(optimizer.kappa), "zero_one_adam: of the variance's steps",
       kAtLeastOne},
      {"optimizer", "optimizer.variance_interval", "", GODWIT_AT(optimizer.variance_interval),
       "zero_one_adam: fixed; 0: kappa's", kNotNegative},
      {"optimizer", "optimizer.freeze_step", "", GODWIT_AT(optimizer.freeze_step),
       "zero_one_adam: of the variance; 0: at local steps", kNotNegative},
      {"optimizer", "optimizer.min_coeff", "", GODWIT_AT(optimizer.min_coeff), "lamb: least norm ratio", kNotNegative},
      {"optimizer", "optimizer.max_coeff", "", GODWIT_AT(optimizer.max_coeff), "lamb: largest", kPositive},
      {"optimizer", "optimizer.coeff_beta", "", GODWIT_AT(optimizer.coeff_beta), "one_bit_lamb: average of the ratios",
       kBelowOne},
      {"optimizer", "optimizer.factor_min", "", GODWIT_AT(optimizer.factor_min), "one_bit_lamb: least factor",
       Range{0, 1, true, false}},
      {"optimizer", "optimizer.factor_max", "", GODWIT_AT(optimizer.factor_max), "one_bit_lamb: largest", kAtLeastOne},
      {"optimizer", "optimizer.factor_threshold", "", GODWIT_AT(optimizer.factor_threshold),
       "one_bit_lamb: its change in a step", kBelowOne},
      {"schedule", "schedule.name", "", GODWIT_AT(schedule.name), "", kAny, schedule_names},
      {"schedule", "schedule.warmup_epochs", "", GODWIT_AT(schedule.warmup_epochs), "linear from 0", kNotNegative},
      {"schedule", "schedule.warmup_fraction", "", GODWIT_AT(schedule.warmup_fraction), "the same, of all steps",
       kFraction},
      {"schedule", "schedule.warmup_steps", "", GODWIT_AT(schedule.warmup_steps), "the same, in steps", kNotNegative},
      {"schedule", "schedule.milestones", "", GODWIT_AT(schedule.milestones), "multi_step: epochs, as 30,60",
       kPositive},
      {"schedule", "schedule.gamma", "", GODWIT_AT(schedule.gamma), "multi_step: factor at each", kPositive},
      {"schedule", "schedule.power", "", GODWIT_AT(schedule.power), "polynomial", kPositive},
      {"schedule", "schedule.final_fraction", "", GODWIT_AT(schedule.final_fraction),
       "linear, cosine, polynomial: of lr, one step after the last", kFraction},
      {"training", "epochs", "--epochs", GODWIT_AT(epochs), "passes over the data", {1, 1e9}},
      {"training",
       "max_steps",
       "--max-steps",
       GODWIT_AT(max_steps),
       "stop after so many steps; 0: all epochs",
       {0, 1e15}},
      {"training", "batch", "--batch", GODWIT_AT(batch), wording.unit + " per worker and micro-batch", {1, 1 << 20}},
      {"training", "accumulation", "--accumulation", GODWIT_AT(accumulation), "micro-batches per step", {1, 1 << 20}},
      {"training", "eval_batch", "", GODWIT_AT(eval_batch), wording.eval_batch, {0, 1 << 20}},
      {"training", "clip.norm", "", GODWIT_AT(clip.norm), "largest norm of all gradients together; 0: no limit",
       kNotNegative},
      {"training", "non_finite", "", GODWIT_AT(non_finite), "steps with a gradient that is not finite", kAny,
       non_finites},
      {"training", "ema.decay", "", GODWIT_AT(ema.decay), "moving average of the weights, evaluated and saved; 0: none",
       kBelowOne},
      {"training", "seed", "--seed", GODWIT_AT(seed), wording.seed, kAny},
      {"workers", "nodes", "--nodes", GODWIT_AT(nodes), "nodes of the topology", {1, 1024}},
      {"workers", "workers_per_node", "--workers-per-node", GODWIT_AT(workers_per_node), "workers in each", {1, 1024}},
      {"workers", "transport", "", GODWIT_AT(transport), "auto is mpi under mpirun and srun, else local", kAny,
       transports},
      {"workers", "timeout_s", "", GODWIT_AT(timeout_s), "seconds a worker waits for the others", {0.001, 1e6}},
      {"workers", "exchange.name", "--exchange", GODWIT_AT(exchange.name), "mean of gradients; see below", kAny,
       exchange_names},
      {"workers", "exchange.wire", "", GODWIT_AT(exchange.wire), "dense; hierarchical: between nodes", kAny,
       wire_names},
      {"workers", "exchange.sharding", "", GODWIT_AT(exchange.sharding), "of optimizer state; zero2: gradients too",
       kAny, sharding_names},
      {"workers", "exchange.parameter_wire", "", GODWIT_AT(exchange.parameter_wire), "of sharded parameters", kAny,
       parameter_wire_names},
      {"workers", "exchange.bits", "", GODWIT_AT(exchange.bits), "loco: of a code, 1, 4 or 8", {1, 8}},
      {"workers", "exchange.scale", "", GODWIT_AT(exchange.scale), "loco: of codes, as 2^19; auto: one a block", kAny,
       nullptr, "S", true},
      {"workers", "exchange.error_scale", "", GODWIT_AT(exchange.error_scale), "loco: of the error, in scales",
       kPositive},
      {"workers", "exchange.error_rounding", "", GODWIT_AT(exchange.error_rounding), "loco: of the error to 8 bits",
       kAny, error_rounding_names},
      {"workers", "exchange.error_gain_new", "", GODWIT_AT(exchange.error_gain_new), "loco: weight of the new error",
       kFraction},
      {"workers", "exchange.reset_every", "", GODWIT_AT(exchange.reset_every),
       "loco: steps after which the error is dropped; 0: never", kNotNegative},
      {"workers", "exchange.clip_element", "", GODWIT_AT(exchange.clip_element), "loco: largest |g|; 0: no limit",
       kNotNegative},
      {"workers", "exchange.saturation_limit", "", GODWIT_AT(exchange.saturation_limit),
       "loco: part of the codes that are not 0 that may saturate", Range{0, 1, true, false}},
      {"workers", "exchange.block_size", "", GODWIT_AT(exchange.block_size), "values of a scale; 0: a parameter's",
       kFromMinusOne},
      {"workers", "exchange.reply", "", GODWIT_AT(exchange.reply), "means; none: messages go to all", kAny,
       reply_names},
      {"workers", "exchange.error_feedback", "", GODWIT_AT(exchange.error_feedback), "", kAny, feedback_names},
      {"workers", "exchange.levels", "", GODWIT_AT(exchange.levels), "qsgd: of each sign", {1, 127}},
      {"workers", "exchange.clip_sigma", "", GODWIT_AT(exchange.clip_sigma),
       "terngrad: clip at so many root mean squares; 0: not", kNotNegative},
      {"workers", "exchange.density", "", GODWIT_AT(exchange.density), "topk, randomk, ef21: part that is sent",
       Range{0, 1, true, false}},
      {"workers", "exchange.rank", "", GODWIT_AT(exchange.rank), "powersgd: of the approximations", kAtLeastOne},
      {"workers", "exchange.compressor", "", GODWIT_AT(exchange.compressor), "ef21", kAny, compressor_names},
      {"workers", "exchange.sign_scale", "", GODWIT_AT(exchange.sign_scale), "ef_signsgd: of a block's signs", kAny,
       sign_scale_names},
      {"workers", "bucket.first_mib", "", GODWIT_AT(bucket.first_mib), "first bucket, MiB", kBucket},
      {"workers", "bucket.mib", "", GODWIT_AT(bucket.mib), "the other buckets, MiB", kBucket},
      {"workers", "threads", "--threads", GODWIT_AT(threads), "per worker; 0: cores / workers", {0, 1024}},
      {"workers", "device", "--device", GODWIT_AT(device), "cuda: one GPU a worker; or cuda:N", kAny, devices},
      {"workers", "share_gpu", "", GODWIT_AT(share_gpu), "device cuda: more workers than GPUs share them", kAny},
      {"workers", "cuda_graph", "", GODWIT_AT(cuda_graph), "device cuda: record a pass once, then replay it", kAny},
      {"workers", "nccl", "", GODWIT_AT(nccl), "between GPUs, one a worker; false: as without it", kAny},
      {"workers", "tf32", "", GODWIT_AT(tf32), "on a GPU: round factors of float32 products to 11 bits", kAny},
      {"workers", "dtype", "--dtype", GODWIT_AT(dtype), "of activations; parameters stay f32", kAny, dtypes},
      {"run", "run_dir", "--run-dir", GODWIT_AT(run_dir), wording.run_dir, kAny, nullptr, "DIR"},
      {"run", "log_every", "", GODWIT_AT(log_every), "steps between lines of metrics.jsonl", kAtLeastOne},
      {"run", "check_replicas", "--check-replicas", GODWIT_AT(check_replicas),
       "compare the workers' parameters every N steps; 0: never", kNotNegative},
  };
}

#undef GODWIT_AT

ConfigPtr default_config(const Program& program) {
  return program.defaults([](const std::string&) { return std::string(); });
}

const Setting* find_setting(const Program& program, const std::string& path) {
  for (const Setting& setting : program.settings)
    if (setting.path == path) return &setting;
  return nullptr;
}

bool is_group(const Program& program, const std::string& path) {
  for (const Setting& setting : program.settings)
    if (setting.path.rfind(path + ".", 0) == 0) return true;
  return false;
}

const Setting* short_form(const Program& program, const std::string& group) {
  const Setting* name = find_setting(program, group + ".name");
  return name ? name : find_setting(program, group + ".path");
}

void fail_unknown_key(const Program& program, const std::string& subject, const std::string& path) {
  std::vector<std::string> paths;
  for (const Setting& setting : program.settings) {
    if (last_part(setting.path) == last_part(path) && last_part(path) != "name")
      fail(subject, ": no such key '", excerpt(path), "'; did you mean '", setting.path, "'?");
    paths.push_back(setting.path);
  }
  const std::string best = nearest(path, paths);
  fail(subject, ": no such key '", excerpt(path), "'",
       best.empty() ? "; --help and --print-config list the keys" : "; did you mean '" + best + "'?");
}

std::vector<std::string> schedule_keys(const std::string& name) {
  std::vector<std::string> keys = {"warmup_epochs", "warmup_fraction", "warmup_steps"};
  if (name == "multi_step") keys.insert(keys.end(), {"milestones", "gamma"});
  if (name == "polynomial") keys.push_back("power");
  if (name == "linear" || name == "cosine" || name == "polynomial") keys.push_back("final_fraction");
  return keys;
}

bool applies(const Program& program, const CommonConfig& config, const Setting& setting) {
  const std::string key = last_part(setting.path);
  if (setting.path.starts_with("exchange."))
    return !communicates_itself(config.optimizer.name) && contains(exchange_keys(config.exchange.name), key);
  if (key == "name") return true;
  if (setting.section == "optimizer") return contains(optimizer_keys(config.optimizer.name), key);
  if (setting.section == "schedule") return contains(schedule_keys(config.schedule.name), key);
  return program.unread(config, setting).empty();
}

}  // namespace godwit::apps
