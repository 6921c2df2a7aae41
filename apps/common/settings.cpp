#include "apps/common/settings.h"

#include <algorithm>

#include "comm/exchange.h"
#include "engine/check.h"
#include "engine/nearest.h"
#include "models/resnet.h"

namespace godwit::apps {
namespace {

constexpr Range kPositive{0, std::numeric_limits<double>::infinity(), true, false};
constexpr Range kNotNegative{0, std::numeric_limits<double>::infinity()};
constexpr Range kFraction{0, 1};
constexpr Range kBelowOne{0, 1, false, true};
constexpr Range kAtLeastOne{1, std::numeric_limits<double>::infinity()};
constexpr Range kBucket{1.0 / 1024, 1 << 20};
constexpr Range kAny{};

std::vector<std::string> devices() { return {"cpu", "auto"}; }
std::vector<std::string> dtypes() { return {"f32", "bf16"}; }
std::vector<std::string> transports() { return {"auto", "local", "mpi"}; }
std::vector<std::string> error_feedbacks() { return {"both", "worker", "server", "none"}; }
std::vector<std::string> quantizers() { return {"random", "sign"}; }
std::vector<std::string> collectives() { return {"h1ar", "all_gather"}; }

#define GODWIT_AT(member) [](TrainConfig& c) -> SettingRef { return &c.member; }

std::vector<Setting> make_settings() {
  return {
      {"model", "model.name", "--model", GODWIT_AT(model.name), "", kAny, resnet_names},
      {"model", "model.small_stem", "", GODWIT_AT(model.small_stem), "resnet18 to 101: 3x3 stem for small images",
       kAny},
      {"model", "model.zero_init_residual", "", GODWIT_AT(model.zero_init_residual),
       "last batch norm of a block starts at 0", kAny},
      {"model", "model.sync_bn", "", GODWIT_AT(model.sync_bn), "batch norm over the batches of all workers", kAny},
      {"model", "init_weights", "--init-weights", GODWIT_AT(init_weights), "start from a safetensors file", kAny},
      {"data", "data.path", "--data", GODWIT_AT(data.path), "IDX, CIFAR or class folders [the packaged Fashion-MNIST]", kAny},
      {"data", "data.pad", "", GODWIT_AT(data.pad), "in memory: pixels around an image before its crop", {0, 64}},
      {"data", "data.flip", "", GODWIT_AT(data.flip), "flip images at random", kAny},
      {"data", "data.crop", "", GODWIT_AT(data.crop), "JPEGs: side of the images trained on [224]", {0, 4096}},
      {"data", "data.resize", "", GODWIT_AT(data.resize), "JPEGs: short side in evaluation [crop 8/7]", {0, 8192}},
      {"data", "data.color_jitter", "", GODWIT_AT(data.color_jitter), "JPEGs: strength", kFraction},
      {"data", "data.mean", "", GODWIT_AT(data.mean), "per channel [ImageNet's; in memory: the data's]", kAny},
      {"data", "data.std", "", GODWIT_AT(data.std), "per channel [as data.mean]", kPositive},
      {"data", "data.max_pixels", "", GODWIT_AT(data.max_pixels), "JPEGs: larger ones are skipped", kAtLeastOne},
      {"data", "data.strict", "--strict", GODWIT_AT(data.strict), "JPEGs: refuse what is else skipped", kAny},
      {"data", "data.label_smoothing", "", GODWIT_AT(data.label_smoothing), "of the training loss", kBelowOne},
      {"data", "data.prefetch", "", GODWIT_AT(data.prefetch), "batches prepared ahead", {1, 1024}},
      {"data", "data.workers", "", GODWIT_AT(data.workers), "threads that prepare them; 0: up to 2", {0, 256}},
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
      {"optimizer", "optimizer.t0", "", GODWIT_AT(optimizer.t0), "birder: step after which b cannot shrink; 0: never",
       kNotNegative},
      {"schedule", "schedule.name", "", GODWIT_AT(schedule.name), "", kAny, schedule_names},
      {"schedule", "schedule.warmup_epochs", "", GODWIT_AT(schedule.warmup_epochs), "linear from 0", kNotNegative},
      {"schedule", "schedule.milestones", "", GODWIT_AT(schedule.milestones), "multi_step: epochs, as 30,60",
       kPositive},
      {"schedule", "schedule.gamma", "", GODWIT_AT(schedule.gamma), "multi_step: factor at each", kPositive},
      {"schedule", "schedule.power", "", GODWIT_AT(schedule.power), "polynomial", kPositive},
      {"schedule", "schedule.final_fraction", "", GODWIT_AT(schedule.final_fraction),
       "linear, cosine, polynomial: of lr, at the end", kFraction},
      {"training", "epochs", "--epochs", GODWIT_AT(epochs), "passes over the data", {1, 1e9}},
      {"training",
       "max_steps",
       "--max-steps",
       GODWIT_AT(max_steps),
       "stop after so many steps; 0: all epochs",
       {0, 1e15}},
      {"training", "batch", "--batch", GODWIT_AT(batch), "images per worker and micro-batch", {1, 1 << 20}},
      {"training", "accumulation", "--accumulation", GODWIT_AT(accumulation), "micro-batches per step", {1, 1 << 20}},
      {"training", "eval_batch", "", GODWIT_AT(eval_batch), "per worker; 0: 250, --batch for large images", {0, 1 << 20}},
      {"training", "clip.norm", "", GODWIT_AT(clip.norm), "largest norm of all gradients together; 0: no limit",
       kNotNegative},
      {"training", "ema.decay", "", GODWIT_AT(ema.decay), "moving average of the weights, evaluated and saved; 0: none",
       kBelowOne},
      {"training", "seed", "--seed", GODWIT_AT(seed), "of initialisation, shuffling, augmentation and quantisation",
       kAny},
      {"workers", "nodes", "--nodes", GODWIT_AT(nodes), "nodes of the topology", {1, 1024}},
      {"workers", "workers_per_node", "--workers-per-node", GODWIT_AT(workers_per_node), "workers in each", {1, 1024}},
      {"workers", "transport", "", GODWIT_AT(transport), "auto is mpi under mpirun and srun, else local", kAny,
       transports},
      {"workers", "timeout_s", "", GODWIT_AT(timeout_s), "seconds a worker waits for the others", {0.001, 1e6}},
      {"workers", "exchange.name", "--exchange", GODWIT_AT(exchange.name), "mean of gradients; not with birder",
       kAny, exchange_names},
      {"workers", "exchange.wire", "", GODWIT_AT(exchange.wire), "of gradients; hierarchical: between nodes",
       kAny, wire_names},
      {"workers", "bucket.first_mib", "", GODWIT_AT(bucket.first_mib), "first bucket, MiB", kBucket},
      {"workers", "bucket.mib", "", GODWIT_AT(bucket.mib), "the other buckets, MiB", kBucket},
      {"workers", "threads", "--threads", GODWIT_AT(threads), "per worker; 0: cores / workers", {0, 1024}},
      {"workers", "device", "--device", GODWIT_AT(device), "this build has no other", kAny, devices},
      {"workers", "dtype", "--dtype", GODWIT_AT(dtype), "of activations; parameters stay f32", kAny, dtypes},
      {"run", "run_dir", "--run-dir", GODWIT_AT(run_dir), "results [runs/<model>-<optimizer>-<date>-<time>]", kAny},
      {"run", "log_every", "", GODWIT_AT(log_every), "steps between lines of metrics.jsonl", kAtLeastOne},
      {"run", "check_replicas", "--check-replicas", GODWIT_AT(check_replicas),
       "compare the workers' parameters every N steps; 0: never", kNotNegative},
  };
}

#undef GODWIT_AT

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }  // npos + 1 is 0

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> table = make_settings();
  return table;
}

const Setting* find_setting(const std::string& path) {
  for (const Setting& setting : settings())
    if (setting.path == path) return &setting;
  return nullptr;
}

bool is_group(const std::string& path) {
  for (const Setting& setting : settings())
    if (setting.path.rfind(path + ".", 0) == 0) return true;
  return false;
}

const Setting* short_form(const std::string& group) {
  const Setting* name = find_setting(group + ".name");
  return name ? name : find_setting(group + ".path");
}

void fail_unknown_key(const std::string& subject, const std::string& path) {
  std::vector<std::string> paths;
  for (const Setting& setting : settings()) {
    if (last_part(setting.path) == last_part(path) && last_part(path) != "name")
      fail(subject, ": no such key '", path, "'; did you mean '", setting.path, "'?");
    paths.push_back(setting.path);
  }
  const std::string best = nearest(path, paths);
  fail(subject, ": no such key '", path, "'",
       best.empty() ? "; --help and --print-config list the keys" : "; did you mean '" + best + "'?");
}

std::vector<std::string> schedule_keys(const std::string& name) {
  std::vector<std::string> keys = {"warmup_epochs"};
  if (name == "multi_step") keys.insert(keys.end(), {"milestones", "gamma"});
  if (name == "polynomial") keys.push_back("power");
  if (name == "linear" || name == "cosine" || name == "polynomial") keys.push_back("final_fraction");
  return keys;
}

bool applies(const TrainConfig& config, const Setting& setting) {
  if (setting.path.starts_with("exchange.")) return !communicates_itself(config.optimizer.name);
  const std::string key = last_part(setting.path);
  if (key == "name") return true;
  if (setting.section == "optimizer") return contains(optimizer_keys(config.optimizer.name), key);
  if (setting.section == "schedule") return contains(schedule_keys(config.schedule.name), key);
  return true;
}

}  // namespace godwit::apps
