// Task: what one rank trains: its model, its batches and its evaluation. A Trainer does the rest.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/report/rows.h"
#include "autograd/var.h"
#include "comm/group.h"
#include "nn/module.h"

namespace godwit::apps {

// Of one micro-batch.
struct Forward {
  Var loss;                     // the mean over its samples
  std::vector<Tensor> correct;  // right answers: the sum of these, of one element each
  double answers = 0;           // all of them
  double samples = 0;
  double data_wait_s = 0;  // until the batch was there
};

// A batch that load_batch() has put in its place.
struct LoadedBatch {
  std::vector<int64_t> key;  // equal for batches of equal shapes, which lie in one place
  double data_wait_s = 0;
};

struct Evaluation {
  std::optional<double> loss = {};                      // mean over the test set
  std::vector<std::pair<std::string, double>> metrics;  // further ones, under their names in metrics.jsonl
  std::string text;                                     // of those metrics: "top-1 91.20 %, top-5 99.10 %"
};

class Task {
 public:
  virtual ~Task() = default;

  virtual nn::Module& model() = 0;        // with its initial weights
  virtual std::string name() const = 0;   // of the model; names run directories
  virtual std::string unit() const = 0;   // what its samples are: "images"
  virtual int64_t batches() const = 0;    // of this rank in an epoch
  virtual Rows notes() const { return {}; }  // for the start of a run

  virtual void on_run_start(const std::string& /*run_dir*/) {}  // on rank 0, before the first step
  virtual void start_epoch(int64_t epoch) = 0;            // from 0; its first batches are prepared meanwhile
  virtual Forward forward(int64_t micro_batch) = 0;       // the epoch's next; its number in the whole run, from 0
  // forward() in two parts, of which a step that is recorded (engine/graph.h) repeats the second.
  virtual LoadedBatch load_batch(int64_t micro_batch) = 0;
  virtual Forward forward_loaded() = 0;  // of the batch that was fetched
  virtual void average_buffers() {}                       // collective: what differs between ranks but the parameters
  virtual Evaluation evaluate() = 0;                      // collective: of the model as it is now
  virtual void write_evaluation(const std::string& /*run_dir*/) {}  // on rank 0: files of the last evaluate()
  virtual std::vector<std::string> corrupt_files() { return {}; }  // files that turned out so, "path: reason"
  // On rank 0, the model as it is now, into a folder: "weights", or "ema" for averaged ones.
  virtual void save(const std::string& run_dir, const std::string& which) = 0;
};

}  // namespace godwit::apps
