// The configuration of a training run: typed, every value resolved. Member names are the configuration keys.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "optim/factory.h"
#include "optim/schedule.h"

namespace godwit::apps {

struct ModelConfig {
  std::string name = "resnet20";
  bool small_stem = false;         // resnet18 … 101: 3×3 stride 1 and no pooling, for small images
  bool zero_init_residual = true;  // the last batch norm of each block starts at gamma 0
  bool sync_bn = false;            // batch norm over the batches of all workers
};

struct DataConfig {
  std::string path;  // folder of IDX or CIFAR files or of class folders; empty: the distribution's Fashion-MNIST
  int pad = 0;       // images in memory: pixels on each side before a random crop of the original size; 0: no crop
  bool flip = true;  // random horizontal flip
  int64_t crop = 0, resize = 0;   // JPEGs: side of the model's images (0: 224); short side in evaluation (0: crop·8/7)
  double color_jitter = 0;        // JPEGs: strength of random brightness, contrast and saturation; 0: none
  std::vector<double> mean, std;  // per channel, of values in [0, 1]; empty: ImageNet's, or the data's when in memory
  int64_t max_pixels = 64000000;  // JPEGs: larger ones are skipped
  bool strict = false;            // JPEGs: refuse what else is skipped
  double label_smoothing = 0;
  int prefetch = 2;  // batches prepared ahead, at least 1
  int workers = 0;   // threads of a worker that prepare them; 0: 2, if it has so many cores
};

struct ExchangeConfig {
  std::string name = "dense";  // of gradients; empty when the optimizer communicates itself
  std::string wire = "f32";    // or bf16, f16
};

struct BucketConfig {
  double first_mib = 1, mib = 25;
};

struct ClipConfig {
  double norm = 0;  // largest norm of all gradients together; 0: not limited
};

struct EmaConfig {
  double decay = 0;  // of a moving average of the weights, which is then evaluated; 0: none
};

struct TrainConfig {
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  ScheduleConfig schedule{.name = "cosine"};
  ExchangeConfig exchange;
  BucketConfig bucket;
  ClipConfig clip;
  EmaConfig ema;
  int64_t epochs = 5;
  int64_t max_steps = 0;  // 0: all of the epochs
  int64_t batch = 16;     // images per worker and micro-batch
  int accumulation = 1;   // micro-batches per step: their gradients are summed before the exchange
  std::string transport = "auto";  // mpi under a launcher, else local
  double timeout_s = 300;          // how long a worker waits for the others
  int nodes = 1, workers_per_node = 1;
  std::string device = "cpu", dtype = "f32";
  uint64_t seed = 1;
  int threads = 0;             // per worker; 0: cores / workers
  std::string run_dir;         // empty: a new folder runs/<model>-<optimizer>-<date>-<time>
  std::string init_weights;    // safetensors file; empty: random initialisation
  int64_t check_replicas = 0;  // compare the workers' parameters every so many steps; 0: never
  int64_t log_every = 10;      // steps between lines of metrics.jsonl
  int64_t eval_batch = 0;      // images per worker in an evaluation; 0: 250, or `batch` for images above 64×64
};

// Workers are processes that a launcher started, and not threads of this one.
bool uses_mpi(const TrainConfig& config);

// JSON that gives the same configuration through --config; holds the keys the optimizer and the schedule read, no
// others.
std::string to_json(const TrainConfig& config);

// Aligned lines for the start of a run: the configuration by group, then `extra` rows (label, text).
std::string summary(const TrainConfig& config, const std::vector<std::pair<std::string, std::string>>& extra = {});

}  // namespace godwit::apps
