// What every training run is configured with: typed, every value resolved. Member names are the configuration keys. A
// program's own configuration derives from it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "optim/factory.h"
#include "optim/schedule.h"

namespace godwit::apps {

struct BucketConfig {
  double first_mib = 1, mib = 25;
};

struct ClipConfig {
  double norm = 0;  // largest norm of all gradients together; 0: not limited
};

struct EmaConfig {
  double decay = 0;  // of a moving average of the weights, which is then evaluated; 0: none
};

struct CommonConfig {
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  ExchangeConfig exchange;  // its name is empty when the optimizer communicates itself
  BucketConfig bucket;
  ClipConfig clip;
  EmaConfig ema;
  std::string non_finite = "fail";  // what a gradient does that is not finite: fail, skip
  int64_t epochs = 5;
  int64_t max_steps = 0;  // 0: all of the epochs
  int64_t batch = 16;     // samples per worker and micro-batch
  int accumulation = 1;   // micro-batches per step: their gradients are summed before the exchange
  std::string transport = "auto";  // mpi under a launcher, else local
  double timeout_s = 300;          // how long a worker waits for the others
  int nodes = 1, workers_per_node = 1;
  std::string device = "cpu", dtype = "f32";
  bool share_gpu = false;  // with device cuda: several workers on one GPU, where there are not enough
  bool cuda_graph = false;  // with device cuda: forward and backward passes are recorded, then replayed
  bool nccl = true;        // workers on GPUs of their own exchange through NCCL, where the build has it
  bool tf32 = false;       // float32 products on a GPU may round their factors to 11 bits
  uint64_t seed = 1;
  int threads = 0;             // per worker; 0: cores / workers
  std::string run_dir;         // empty: a new folder runs/<model>-<optimizer>-<date>-<time>
  std::string init_weights;    // file or folder; empty: random initialisation
  int64_t check_replicas = 0;  // compare the workers' parameters every so many steps; 0: never
  int64_t log_every = 10;      // steps between lines of metrics.jsonl
  int64_t eval_batch = 0;      // samples per worker in an evaluation; 0: the program decides

  std::vector<std::string> notices;  // parts of the configuration file that the command line replaced; not a setting
};

// Workers are processes that a launcher started, and not threads of this one.
bool uses_mpi(const CommonConfig& config);

}  // namespace godwit::apps
