// The configuration of a training run. It is typed, and every value is resolved. Member names are the configuration
// keys.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "apps/report/log_options.h"
#include "comm/exchange/method.h"
#include "comm/transport/worker_options.h"
#include "optim/bucket_size_options.h"
#include "optim/checkpoint_options.h"
#include "optim/method.h"
#include "optim/schedule.h"
#include "optim/spike_guard.h"

namespace godwit::apps {

// Help texts of common options, which differ between programs.
struct CommonTexts {
  std::string unit;        // "images"
  std::string eval_batch;  // "images per worker; 0: 250"
  std::string seed;        // "seed of initialization and shuffling"
  std::string run_dir;     // default: "runs/<model>-<optimizer>-<date>-<time>"
};

// The options of all programs. The configuration of a program derives from this struct.
struct CommonConfig : WorkerOptions, LogOptions {
  OptimizerConfig optimizer = "sgdm";
  ScheduleConfig schedule;
  ExchangeConfig exchange = "dense";  // not used by an optimizer that communicates itself
  BucketSizeOptions bucket;
  struct {
    double norm = 0;  // limit of the global gradient norm; 0: no limit
  } clip;
  struct {
    double decay = 0;  // decay rate of a moving average of the weights, which is evaluated instead; 0: no average
  } ema;
  SpikeOptions spike;
  CheckpointOptions checkpoint;
  std::string non_finite = "fail";  // reaction to a non-finite gradient: fail, or skip the step
  int64_t epochs = 5;
  int64_t max_steps = 0;      // 0: all epochs
  int64_t batch = 16;         // samples per worker and micro-batch
  int accumulation = 1;       // micro-batches per step; their gradients are summed before the exchange
  std::string dtype = "f32";  // type of activations; parameters stay f32
  bool cuda_graph = false;    // device cuda: capture forward and backward passes, then replay them
  bool tf32 = false;          // device cuda: float32 products may round their factors to 11 bits
  bool dnn_timing = false;    // device cuda: time cuDNN engines once per convolution and machine
  uint64_t seed = 1;
  std::string run_dir;         // empty: a new folder runs/<model>-<optimizer>-<date>-<time>
  std::string resume;          // run directory to continue, or auto; empty: a new run
  std::string init_weights;    // file or folder; empty: random initialization
  int64_t check_replicas = 1000;  // steps between comparisons of the workers' parameters, also at the end; 0: never
  int64_t eval_batch = 0;      // samples per worker and evaluation batch; train_lm: streams of all workers; 0: default
  int64_t validation = 0;      // evaluate on one in N training samples, held out, instead of the test data; 0: off

  // The program's default for exchanges whose default sharding is none. Not an option.
  Sharding default_sharding = Sharding::none;
  std::string program;  // name of the program, such as "train_resnet". Not an option
  std::vector<std::string> notices;  // notices, such as parts of the file that the command line replaces; not an option

  virtual ~CommonConfig() = default;
  OptionList options() const;               // options in the order of printing; the list refers to this object
  void set_exchange(const std::string& name);  // sets an exchange with its default options and default_sharding
  virtual void check_together() const = 0;  // throws if options contradict each other
  // Whether samples are text streams. A run that is resumed with another number of workers keeps the total number of
  // streams.
  virtual bool samples_are_streams() const { return false; }
  // The network that model.name=auto selects without initial weights. Empty if the program has no such choice.
  virtual std::string automatic_network() const { return ""; }

 protected:
  virtual void describe(OptionList& list) = 0;
  void describe_common(OptionList& list, const CommonTexts& texts);
};

}  // namespace godwit::apps
