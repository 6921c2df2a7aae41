// Task: the model, batches and evaluation of one rank, as used by Trainer.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/report/rows.h"
#include "autograd/var.h"
#include "comm/consistency.h"
#include "comm/group.h"
#include "nn/module.h"

namespace godwit::apps {

// The result of one micro-batch.
struct Forward {
  Var loss;                          // mean over the samples
  std::vector<Tensor> correct = {};  // one element each; the sum is the number of correct answers
  double answers = 0;                // total number of answers; 0: the task reports no accuracy
  double samples = 0;
  double data_wait_s = 0;  // seconds spent waiting for the batch
};

// A batch loaded by load_batch().
struct LoadedBatch {
  std::vector<int64_t> key;  // equal for batches with equal shapes, which use the same memory
  double data_wait_s = 0;
};

struct Evaluation {
  std::optional<double> loss = {};                      // mean over the test set; "test_loss"
  std::vector<std::pair<std::string, double>> metrics;  // further metrics, by name in metrics.jsonl
  std::string text;                                     // the metrics as text: "top-1 91.20 %, top-5 99.10 %"
  std::string below = {};                               // further lines to print, on rank 0
};

// Collective: calls f, which may read the parameters but must not communicate. See DataParallel::read_parameters().
using ReadParameters = std::function<void(const std::function<void()>& f)>;

// Called before each batch of an evaluation, within f of ReadParameters. Throws if a stop signal ends the evaluation.
using CheckStop = std::function<void()>;

class Task {
 public:
  virtual ~Task() = default;

  virtual nn::Module& model() = 0;        // with initial weights
  virtual std::string name() const = 0;   // name of the model; prefix of run directory names
  virtual std::string unit() const = 0;   // name of a sample, such as "images"
  virtual int64_t batch_samples() const = 0;  // number of samples in a micro-batch of this rank
  virtual int64_t batches() const = 0;        // number of micro-batches of this rank per epoch
  virtual int64_t evaluate_every() const { return 0; }  // steps between evaluations within an epoch; 0: none
  virtual Rows notes() const { return {}; }  // printed at the start of a run

  virtual void on_run_start(const std::string& /*run_dir*/) {}  // called on rank 0 before the first step
  // Begins to prefetch batches of this rank, starting at first_batch. Epochs start at 0.
  virtual void start_epoch(int64_t epoch, int64_t first_batch = 0) = 0;
  // Runs the next batch of the epoch. micro_batch counts over the whole run, starting at 0.
  virtual Forward forward(int64_t micro_batch) = 0;
  // forward() in two parts. A captured step (engine/graph.h) replays the second part.
  virtual LoadedBatch load_batch(int64_t micro_batch) = 0;
  virtual Forward forward_loaded() = 0;  // forward pass of the loaded batch
  // Tensors, other than parameters and buffers, that carry over from one training batch to the next. For checkpoints
  // and measurements.
  virtual std::vector<nn::NamedTensor> state() { return {}; }
  virtual std::vector<std::string> figures() const { return {}; }  // names of the figures of evaluate(), in order
  virtual void average_buffers() {}  // collective: makes buffers that differ between ranks equal, usually their mean
  // Collective: evaluates the current model. Parameters are read only in `read`, which all ranks must call equally
  // often.
  virtual Evaluation evaluate(const ReadParameters& read, const CheckStop& check_stop) = 0;
  // On rank 0: writes files of the last evaluate(), which followed step `step`. Replaces results of an interrupted run
  // for this step and later ones.
  virtual void write_evaluation(const std::string& /*run_dir*/, int64_t /*step*/) {}
  virtual std::vector<std::string> corrupt_files() { return {}; }  // corrupt files found so far, "path: reason"
  // On rank 0: saves the current model to a folder ("weights", or "ema" for averaged weights). Parameters are read one
  // after the other (nn::tensor_sources()).
  virtual void save(const std::string& run_dir, const std::string& which) = 0;
  // On rank 0, possibly while the model trains: writes the files of a HuggingFace folder except the weights. The folder
  // is created if it does not exist.
  virtual void save_description(const std::string& folder) { std::filesystem::create_directories(folder); }
  // Hashes of the data by name, such as "the training data".
  const std::map<std::string, uint64_t>& data_hashes() const { return data_hashes_; }
  // The name in data_hashes() of the data that determines the meaning of token ids; "" if the model reads no token ids.
  const std::string& tokens() const { return tokens_; }

 protected:
  // Collective: adds to data_hashes(). Throws if the ranks have different data.
  void check_data(Group& world, uint64_t hash, const std::string& name) {
    check_identical(world, hash, name, "use the same files on all ranks");
    data_hashes_[name] = hash;
  }
  // Like check_data(), for the vocabulary or tokenizer, which must not change in a resumed run.
  void check_tokens(Group& world, uint64_t hash, const std::string& name) {
    check_data(world, hash, name);
    tokens_ = name;
  }

 private:
  std::map<std::string, uint64_t> data_hashes_;
  std::string tokens_;
};

}  // namespace godwit::apps
