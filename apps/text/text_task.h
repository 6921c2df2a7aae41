// TextTask: one rank's batches of text and its BERT model. Base class of the tasks pretrain, squad and classify.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/train/task.h"
#include "apps/text/text_data.h"
#include "data/text/text_loader.h"
#include "models/bert.h"

namespace godwit::apps {

class TextTask : public Task {
 public:
  nn::Module& model() override { return *model_; }
  std::string name() const override { return data_.model_name + "-" + config_.task; }
  int64_t batch_samples() const override { return config_.batch; }
  int64_t batches() const override { return train_.batches(); }
  Rows notes() const override { return notes_; }
  void on_run_start(const std::string& run_dir) override;  // saves the vocabulary if this run trained it
  void start_epoch(int64_t epoch, int64_t first_batch) override { train_.start_epoch(epoch, first_batch); }
  Forward forward(int64_t micro_batch) override;
  LoadedBatch load_batch(int64_t micro_batch) override;
  Forward forward_loaded() override;
  void save(const std::string& run_dir, const std::string& which) override;  // writes a folder in HuggingFace's format
  void save_description(const std::string& folder) override;

 protected:
  // Collective: checks that all ranks have the same text. The references must outlive the task. Loads the initial
  // weights if the configuration names them.
  TextTask(const TextConfig& config, const TextData& data, Communicator& comm, std::unique_ptr<BertModule> model);

  // Loss and number of correct answers of a batch. `run` provides the keys of the dropout masks; null: no dropout.
  virtual Forward loss(const data::TextBatch& batch, const DropoutContext* run) const = 0;
  template <class Net>
  const Net& net() const {
    return static_cast<const Net&>(*model_);
  }
  // Collective: calls f without gradients. f may read parameters but must not communicate.
  void for_test_batches(const ReadParameters& read, const CheckStop& check_stop,
                        const std::function<void(const data::TextBatch&)>& f);

  const TextConfig& config_;
  const TextData& data_;
  Communicator& comm_;

 private:
  data::TextBatch next(int64_t micro_batch, double& waited);
  Forward loss_with(const DropoutContext& run, const data::TextBatch& batch) const;

  data::TextLoader train_, test_;
  std::unique_ptr<BertModule> model_;
  Rows notes_;
  std::map<std::vector<int64_t>, data::TextBatch> fixed_;  // by batch shape; at fixed addresses for CUDA graphs
  const data::TextBatch* fetched_ = nullptr;
  Tensor micro_batch_;  // number of the loaded micro-batch
};

TextInput input_of(const data::TextBatch& batch);

std::unique_ptr<Task> make_pretrain_task(const TextConfig& config, const TextData& data, Communicator& comm);
std::unique_ptr<Task> make_squad_task(const TextConfig& config, const TextData& data, Communicator& comm);
std::unique_ptr<Task> make_classify_task(const TextConfig& config, const TextData& data, Communicator& comm);
// Creates the task that config.task names.
std::unique_ptr<Task> make_text_task(const TextConfig& config, const TextData& data, Communicator& comm);

}  // namespace godwit::apps
