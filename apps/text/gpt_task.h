// GptTask: one rank's blocks of tokens and its language model.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "apps/text/gpt_data.h"
#include "apps/train/task.h"
#include "data/text/token_blocks.h"
#include "models/make_causal_lm.h"

namespace godwit::apps {

class GptTask : public Task {
 public:
  // Collective: checks that all ranks have the same text. The references must outlive the task. Throws if the text is
  // too short for one batch of all workers.
  GptTask(const GptConfig& config, const GptData& data, Communicator& comm);

  nn::Module& model() override { return *model_; }
  std::string name() const override { return config_.model_name == "auto" ? default_name() : config_.model_name; }
  std::string unit() const override { return "tokens"; }
  int64_t batch_samples() const override { return config_.batch * config_.data.context; }
  int64_t batches() const override { return train_.batches(); }
  int64_t evaluate_every() const override { return config_.evaluate_every; }
  Rows notes() const override { return data_.notes; }
  void start_epoch(int64_t epoch, int64_t first_batch) override { train_.start_epoch(epoch, first_batch); }
  Forward forward(int64_t micro_batch) override;
  LoadedBatch load_batch(int64_t micro_batch) override;
  Forward forward_loaded() override;
  std::vector<std::string> figures() const override { return {"val_loss", "perplexity", "bits_per_byte"}; }
  // Also generates a sample.
  Evaluation evaluate(const ReadParameters& read, const CheckStop& check_stop) override;
  void write_evaluation(const std::string& run_dir, int64_t step) override;  // appends the sample to samples.txt
  void save(const std::string& run_dir, const std::string& which) override;  // writes a HuggingFace folder
  void save_description(const std::string& folder) override;

 private:
  std::string default_name() const { return config_.init_weights.empty() ? config_.automatic_network() : model_->sizes().name; }
  data::TokenBatch next(int64_t micro_batch);
  Var loss(const data::TokenBatch& batch, const DropoutContext* run) const;

  const GptConfig& config_;
  const GptData& data_;
  Communicator& comm_;
  data::TokenBlocks train_, valid_;
  std::unique_ptr<CausalLM> model_;
  std::optional<data::TokenBatch> loaded_;  // at fixed addresses for CUDA graphs
  Tensor micro_batch_;                      // number of the loaded micro-batch
  std::string sample_;                      // sample of the last evaluation; only on rank 0
};

}  // namespace godwit::apps
