// The configuration of a training run: typed, every value resolved. Member names are the configuration keys.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/exchange/method.h"
#include "optim/method.h"
#include "optim/schedule.h"

namespace godwit::apps {

struct BucketConfig {
  double first_mib = 1, mib = 25;
};

struct ClipConfig {
  double norm = 0;  // limit of the norm of all gradients together; 0: no limit
};

struct CheckpointConfig {
  std::string every = "0";  // steps between checkpoints, or minutes: "10min"; 0: none
  int64_t keep = 2;         // number of checkpoints kept, besides the best one
  std::string best;         // figure of the evaluations whose best value is kept, as "test_top1"; empty: none

  int64_t steps() const;   // between checkpoints; 0: none by steps
  double seconds() const;  // between checkpoints; 0: none by time
  bool enabled() const { return steps() > 0 || seconds() > 0 || !best.empty(); }
};

struct SpikeConfig {
  std::string guard = "off";  // on a jump of loss or gradient norm: off, skip the step, or rollback
  double z = 6;               // what counts as a jump, in standard deviations
  int64_t window = 100;       // steps that it is compared with
};

struct EmaConfig {
  double decay = 0;  // of a moving average of the weights, which is then evaluated; 0: no average
};

// Texts in the options that all programs have, which differ by program.
struct CommonTexts {
  std::string unit;        // "images"
  std::string eval_batch;  // "images per worker; 0: 250"
  std::string seed;        // "seed of initialization and shuffling"
  std::string run_dir;     // the default: "runs/<model>-<optimizer>-<date>-<time>"
};

// What all programs have. A program's configuration derives from it.
struct CommonConfig {
  OptimizerConfig optimizer = "sgdm";
  ScheduleConfig schedule;
  ExchangeConfig exchange = "dense";  // not used by an optimizer that communicates itself
  BucketConfig bucket;
  ClipConfig clip;
  SpikeConfig spike;
  EmaConfig ema;
  CheckpointConfig checkpoint;
  std::string non_finite = "fail";  // on a non-finite gradient: fail, or skip the step
  int64_t epochs = 5;
  int64_t max_steps = 0;           // 0: all epochs
  int64_t batch = 16;              // samples per worker and micro-batch
  int accumulation = 1;            // micro-batches per step, whose gradients are summed before the exchange
  std::string transport = "auto";  // auto: mpi under a launcher, otherwise local
  double timeout_s = 60;           // how long a worker waits for the others
  int nodes = 1, workers_per_node = 1;
  std::string device = "cpu", dtype = "f32";
  bool share_gpu = false;   // device cuda: workers may share a GPU
  bool cuda_graph = false;  // device cuda: capture forward and backward passes, then replay them
  bool nccl = true;         // workers with a GPU each communicate through NCCL, if the build has it
  bool tf32 = false;        // float32 products on a GPU may round their factors to 11 bits
  uint64_t seed = 1;
  int threads = 0;             // per worker; 0: cores / workers
  std::string run_dir;         // empty: a new folder runs/<model>-<optimizer>-<date>-<time>
  std::string resume;          // run directory to continue, or auto; empty: a new run
  std::string init_weights;    // file or folder; empty: random initialization
  int64_t check_replicas = 0;  // compare the workers' parameters every so many steps; 0: never
  int64_t log_every = 10;      // steps between lines of metrics.jsonl
  bool tensorboard = true;     // write an event file for TensorBoard
  bool trace = false;          // write trace.json
  int64_t trace_steps = 20;    // number of steps in it
  int64_t eval_batch = 0;      // samples per worker in an evaluation; 0: the program decides
  int64_t validation = 0;      // evaluate on one in so many training samples, not on the test data; 0: off

  std::vector<std::string> notices;  // parts of the configuration file that the command line replaced; not an option

  virtual ~CommonConfig() = default;
  OptionList options() const;               // in the order of printing; refers to this object
  virtual void check_together() const = 0;  // throws if options contradict each other

 protected:
  virtual void describe(OptionList& list) = 0;
  void describe_common(OptionList& list, const CommonTexts& texts);
};

bool uses_mpi(const CommonConfig& config);  // workers are processes that a launcher started, not threads

}  // namespace godwit::apps
