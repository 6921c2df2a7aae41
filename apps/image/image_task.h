// ImageTask: one rank's images, network and evaluation.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/train/task.h"
#include "apps/image/image_batches.h"
#include "apps/image/image_config.h"
#include "apps/image/image_data.h"
#include "models/image_model.h"

namespace godwit::apps {

class ImageTask : public Task {
 public:
  // Collective: checks that all ranks have the same images. The references must outlive the task.
  ImageTask(const ImageConfig& config, const ImageData& data, Communicator& comm);

  nn::Module& model() override { return *model_; }
  std::string name() const override { return config_.model.name; }
  std::string unit() const override { return "images"; }
  int64_t batch_samples() const override { return config_.batch; }
  int64_t batches() const override { return train_.batches(); }
  Rows notes() const override { return notes_; }

  void on_run_start(const std::string& run_dir) override { write_skipped(data_, run_dir); }
  void start_epoch(int64_t epoch, int64_t first_batch) override { train_.start_epoch(epoch, first_batch); }
  Forward forward(int64_t micro_batch) override;
  LoadedBatch load_batch(int64_t micro_batch) override;
  Forward forward_loaded() override;
  void average_buffers() override;  // makes batch-norm statistics equal
  std::vector<std::string> figures() const override { return {"test_loss", "test_top1", "test_top5"}; }
  Evaluation evaluate(const ReadParameters& read, const CheckStop& check_stop) override;
  std::vector<std::string> corrupt_files() override;
  void save(const std::string& run_dir, const std::string& which) override;  // writes a safetensors file

 private:
  void load_initial_weights();
  data::Batch next(int64_t micro_batch, double& waited);
  Forward loss(const data::Batch& batch, const DropoutContext& run);

  const ImageConfig& config_;
  const ImageData& data_;
  Communicator& comm_;
  ImageBatches train_, test_;
  std::unique_ptr<ImageModel> model_;
  Rows notes_;
  data::Batch fixed_;   // the loaded batch, at a fixed address for CUDA graphs
  Tensor micro_batch_;  // number of the loaded micro-batch
};

}  // namespace godwit::apps
