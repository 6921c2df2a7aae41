// The options that all programs have.
#include "apps/config/config.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "comm/transport/launcher.h"
#include "engine/device.h"
#include "engine/excerpt.h"

namespace godwit::apps {
namespace {

// The GPU of a worker depends on its rank, so this checks only that there are GPUs.
void check_device(const std::string& text, const std::string& subject) {
  check(!parse_device(text, subject).is_cuda() || cuda_devices() > 0, subject, ": '", text,
        "' is not available: ", why_no_cuda());
}

// "200" or "10min".
struct Interval {
  int64_t steps = 0;
  double seconds = 0;
};

std::optional<Interval> read_interval(std::string text) {
  const bool minutes = text.ends_with("min");
  if (minutes) text.resize(text.size() - 3);
  if (text.ends_with(" ")) text.pop_back();
  double number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = std::floor(number) == number;
  if (error != std::errc() || end != text.data() + text.size() || !(number >= 0 && number <= 1e15) ||
      (!minutes && !whole))
    return {};
  return minutes ? Interval{.seconds = 60 * number} : Interval{.steps = std::llround(number)};
}

void check_interval(const std::string& text, const std::string& subject) {
  check(read_interval(text).has_value(), subject, " expects a number of steps, as 200, or of minutes, as 10min; got '",
        excerpt(text), "'");
}

}  // namespace

int64_t CheckpointConfig::steps() const { return read_interval(every).value_or(Interval()).steps; }
double CheckpointConfig::seconds() const { return read_interval(every).value_or(Interval()).seconds; }

bool uses_mpi(const CommonConfig& config) {
  return config.transport == "mpi" || (config.transport == "auto" && under_launcher());
}

OptionList CommonConfig::options() const {
  OptionList list;
  const_cast<CommonConfig*>(this)->describe(list);  // a list can read and write
  return list;
}

void CommonConfig::describe_common(OptionList& list, const CommonTexts& texts) {
  const auto begin = [&](const char* section, const char* prefix) { list.section = section, list.prefix = prefix; };
  begin("optimizer", "optimizer.");
  add_name<OptimizerMethod>(list, optimizer, "the method; see below").with_flag("--optimizer");
  for (const Option& option : optimizer.list()) {
    Option& added = list.append(option);
    if (option.name == "lr") added.with_flag("--lr");
  }

  begin("schedule", "schedule.");
  schedule.describe(list);

  begin("training", "");
  list.add("epochs", epochs, "passes over the data", {1, 1e9}).with_flag("--epochs");
  list.add("max_steps", max_steps, "stop after this many steps; 0: all epochs", {0, 1e15}).with_flag("--max-steps");
  list.add("batch", batch, texts.unit + " per worker and micro-batch", {1, 1 << 20}).with_flag("--batch");
  list.add("accumulation", accumulation, "micro-batches per step", {1, 1 << 20}).with_flag("--accumulation");
  list.add("eval_batch", eval_batch, texts.eval_batch, {0, 1 << 20});
  list.add(
      "validation", validation,
      "to choose options: hold out one in so many training samples and evaluate on them, not on the test data; 0: off",
      {0, 1e9});
  list.add("clip.norm", clip.norm, "limit of the norm of all gradients together; 0: no limit", kNotNegative);
  list.add("spike.guard", spike.guard,
           "if loss or gradient norm jumps: do nothing, skip the step, or return to the last checkpoint")
      .with_choices({"off", "skip", "rollback"});
  list.add("spike.z", spike.z, "size of a jump: standard deviations above the mean", kPositive);
  list.add("spike.window", spike.window, "steps whose mean and deviation count", {20, 1e6});
  list.add("non_finite", non_finite, "on a non-finite gradient: end the run, or skip the step")
      .with_choices({"fail", "skip"});
  list.add("ema.decay", ema.decay, "moving average of the weights, evaluated and saved; 0: none", {0, 1, false, true});
  list.add("seed", seed, texts.seed).with_flag("--seed");

  begin("workers", "");
  list.add("nodes", nodes, "nodes of the topology", {1, 1024}).with_flag("--nodes");
  list.add("workers_per_node", workers_per_node, "workers per node", {1, 1024}).with_flag("--workers-per-node");
  list.add("transport", transport, "auto: mpi under mpirun and srun, otherwise local")
      .with_choices({"auto", "local", "mpi"});
  list.add("timeout_s", timeout_s, "seconds that a worker waits for the others", {0.001, 1e6});
  const std::string communicates = optimizer.name() + " communicates itself and takes no exchange; leave it out";
  const std::string no_sharding = optimizer.name() +
                                  " keeps state of all parameters on every worker, which sharding "
                                  "cannot divide; leave it out, or use an optimizer behind an exchange, such as adamw";
  const auto add_exchange = [&](Option& option) {
    option.only_if(!optimizer.method().communicates_itself,
                   option.name == "exchange.sharding" ? no_sharding : communicates);
  };
  list.prefix = "exchange.";
  add_exchange(
      add_name<ExchangeMethod>(list, exchange, "how gradients are averaged; see below").with_flag("--exchange"));
  for (const Option& option : exchange.list()) add_exchange(list.append(option));
  list.prefix = "";
  list.add("bucket.first_mib", bucket.first_mib, "size of the first bucket, MiB", {1.0 / 1024, 1 << 20});
  list.add("bucket.mib", bucket.mib, "size of the other buckets, MiB", {1.0 / 1024, 1 << 20});
  list.add("threads", threads, "threads per worker; 0: cores / workers", {0, 1024})
      .with_flag("--threads")
      .differs_by_host();
  Option& where = list.add("device", device, "cuda: a GPU for each worker; or cuda:N");
  where.with_flag("--device").with_choices({"cpu", "cuda", "auto"}).check_text = check_device;
  list.add("share_gpu", share_gpu, "device cuda: workers share GPUs if there are too few");
  list.add("cuda_graph", cuda_graph, "device cuda: capture a pass once, then replay it");
  list.add("nccl", nccl, "use NCCL between workers that have a GPU each");
  list.add("tf32", tf32, "on a GPU: round factors of float32 products to 11 bits");
  list.add("dtype", dtype, "type of activations; parameters stay f32")
      .with_flag("--dtype")
      .with_choices({"f32", "bf16"});

  begin("run", "");
  list.add("run_dir", run_dir, "folder for results; default: " + texts.run_dir)
      .with_flag("--run-dir")
      .with_placeholder("DIR")
      .differs_by_host();
  list.add("checkpoint.every", checkpoint.every, "steps between checkpoints, or minutes, as 10min; 0: none")
      .with_flag("--checkpoint-every")
      .or_number()
      .check_text = check_interval;
  list.add("checkpoint.keep", checkpoint.keep, "number of checkpoints kept, the newest ones", kAtLeastOne);
  list.add("checkpoint.best", checkpoint.best,
           "keep also the one with the best value of this figure of metrics.jsonl, as test_top1; a loss or perplexity "
           "is best when low");
  list.add("resume", resume,
           "continue the run in this directory from its newest checkpoint; auto: the run in --run-dir, or a new one "
           "if it has no checkpoint")
      .with_flag("--resume")
      .with_placeholder("DIR")
      .differs_by_host();
  list.add("log_every", log_every, "steps between lines of metrics.jsonl", kAtLeastOne);
  list.add("tensorboard", tensorboard, "write an event file for TensorBoard");
  list.add("trace", trace, "write trace.json, a timeline of some steps for Perfetto and Chrome").with_flag("--trace");
  list.add("trace_steps", trace_steps, "number of steps in trace.json", kAtLeastOne);
  list.add("check_replicas", check_replicas, "compare the workers' parameters every N steps; 0: never", kNotNegative)
      .with_flag("--check-replicas");
}

}  // namespace godwit::apps
