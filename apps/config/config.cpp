// The options that all training programs have.
#include "apps/config/config.h"

namespace godwit::apps {

OptionList CommonConfig::options() const {
  OptionList list;
  const_cast<CommonConfig*>(this)->describe(list);  // a list can read and write
  return list;
}

void CommonConfig::set_exchange(const std::string& name) {
  exchange = name;
  if (exchange.sharding == Sharding::none) exchange.sharding = default_sharding;
}

void CommonConfig::describe_common(OptionList& list, const CommonTexts& texts) {
  const auto begin = [&](const char* section, const char* prefix) { list.section = section, list.prefix = prefix; };
  begin("optimizer", "optimizer.");
  add_name<OptimizerMethod>(list, optimizer, "optimizer; listed below").with_flag("--optimizer");
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
  list.add("validation", validation,
           "hold out one in N training samples, and evaluate on them instead of the test data, to choose options; "
           "0: off",
           {0, 1e9});
  list.add("clip.norm", clip.norm, "limit of the global gradient norm; 0: no limit", kNotNegative);
  list.add("non_finite", non_finite, "on a non-finite gradient: end the run, or skip the step")
      .with_choices({"fail", "skip"});
  list.add("ema.decay", ema.decay,
           "decay rate of the evaluated and saved moving average of the weights; 0: no average", {0, 1, false, true});
  list.add("seed", seed, texts.seed).with_flag("--seed");
  begin("training", "spike.");
  spike.describe(list);

  begin("workers", "");
  describe_topology(list);
  begin("workers", "exchange.");
  const auto add_exchange = [&](Option& option) {
    const bool shards = option.name == "exchange.sharding";
    const std::string reason = shards ? kOnlyHybrid
                                      : " communicates itself and takes no exchange; leave it out";
    // If the program's default is auto, the configuration keeps the picked value, even if it is none.
    const bool picked = shards && default_sharding == Sharding::automatic;
    const bool applies = !optimizer.method().communicates_itself || exchange.hybrid_reads(option.name) || picked;
    option.only_if(applies, optimizer.name() + reason);
  };
  add_exchange(add_name<ExchangeMethod>(list, exchange, "exchange, which averages gradients; listed below")
                   .with_flag("--exchange"));
  for (const Option& option : exchange.list()) add_exchange(list.append(option));
  begin("workers", "");
  describe_devices(list);
  list.add("cuda_graph", cuda_graph, "on a GPU: run forward and backward passes as CUDA graphs");
  list.add("tf32", tf32, "on a GPU: round factors of float32 products to 11 bits");
  list.add("dnn_timing", dnn_timing,
           "on a GPU: time three cuDNN engines per convolution, and keep the choice for later runs");
  list.add("dtype", dtype, "type of activations; parameters stay f32")
      .with_flag("--dtype", "TYPE")
      .with_choices({"f32", "bf16"});
  begin("workers", "bucket.");
  bucket.describe(list);

  begin("run", "");
  list.add("run_dir", run_dir, "folder for results; default: " + texts.run_dir)
      .with_flag("--run-dir", "DIR")
      .differs_by_host();
  list.add("resume", resume,
           "continue the run in this directory from its newest checkpoint; auto: the run in --run-dir, or a new run "
           "if there is no checkpoint")
      .with_flag("--resume", "DIR")
      .differs_by_host();
  describe_log(list);
  list.add("check_replicas", check_replicas, "compare the workers' parameters every N steps and at the end; 0: never",
           kNotNegative)
      .with_flag("--check-replicas");
  begin("run", "checkpoint.");
  checkpoint.describe(list);
}

}  // namespace godwit::apps
