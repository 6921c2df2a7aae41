// LmTask: one rank's streams of text and its LSTM language model.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/text/lm_data.h"
#include "apps/train/task.h"
#include "data/text/token_windows.h"

namespace godwit::apps {

// The state after a window is the initial state of the next window (truncated back-propagation through time). Each
// epoch and each evaluation begins with a zero state.
class LmTask : public Task {
 public:
  // Collective: checks that all ranks have the same text. The references must outlive the task. Throws if the text is
  // too short for the workers' streams.
  LmTask(const LmConfig& config, const LmData& data, Communicator& comm);

  nn::Module& model() override { return *model_; }
  std::string name() const override { return config_.model_name; }
  std::string unit() const override { return "tokens"; }
  int64_t batch_samples() const override { return config_.batch * config_.data.length; }
  int64_t batches() const override { return train_.windows(); }
  Rows notes() const override { return notes_; }
  void on_run_start(const std::string& run_dir) override;  // saves the vocabulary if this run built it
  void start_epoch(int64_t epoch, int64_t first_batch) override;
  std::vector<nn::NamedTensor> state() override;  // the LSTM state between windows
  Forward forward(int64_t micro_batch) override;
  LoadedBatch load_batch(int64_t micro_batch) override;
  Forward forward_loaded() override;
  std::vector<std::string> figures() const override {
    if (!test_) return {"val_loss", "perplexity"};
    return {"test_loss", "val_loss", "perplexity", "test_perplexity"};
  }
  Evaluation evaluate(const ReadParameters& read, const CheckStop& check_stop) override;
  void save(const std::string& run_dir, const std::string& which) override;  // writes a safetensors file

 private:
  data::TokenWindow next(int64_t micro_batch);
  Forward loss(const data::TokenWindow& window, const DropoutContext& run);
  std::pair<double, double> sum_of_losses(data::TokenWindows& windows,
                                          const CheckStop& check_stop);  // returns also the number of predictions

  const LmConfig& config_;
  const LmData& data_;
  Communicator& comm_;
  data::TokenWindows train_, valid_;
  std::unique_ptr<data::TokenWindows> test_;  // null without a test text
  std::unique_ptr<LstmLanguageModel> model_;
  Rows notes_;
  LstmLanguageModel::State state_;                   // state between windows; at fixed addresses for CUDA graphs
  std::map<int64_t, data::TokenWindow> fixed_;       // by length; at fixed addresses for CUDA graphs
  const data::TokenWindow* loaded_ = nullptr;
  Tensor micro_batch_;  // number of the loaded micro-batch
};

}  // namespace godwit::apps
