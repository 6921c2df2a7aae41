// ImageTrainer: one rank's part of training an image classifier: step, evaluation, replica check, logging, weights.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/config.h"
#include "apps/common/image_data.h"
#include "apps/common/progress.h"
#include "apps/common/run_log.h"
#include "comm/group.h"
#include "data/loader.h"
#include "models/resnet.h"
#include "optim/data_parallel.h"
#include "optim/ema.h"
#include "optim/schedule.h"

namespace godwit::apps {

struct Evaluation {
  double loss = 0, top1 = 0, top5 = 0;  // means over the whole test set; top1, top5 are fractions
};

class ImageTrainer {
 public:
  // Builds the model and its state on the calling rank; every rank makes one, and they check that they agree. `data`
  // and `comm` must outlive the trainer.
  ImageTrainer(const TrainConfig& config, const ImageData& data, Communicator& comm);

  // Trains to the end and returns the last evaluation. Rank 0 writes the run directory and reports to `progress`.
  Evaluation run(Progress& progress);

 private:
  // Sums since the last report, over this rank's samples.
  struct Tally {
    double correct = 0, samples = 0;
    double bytes_intra = 0, bytes_inter = 0;
    double data_wait_s = 0;  // that this rank waited for its batches
    int64_t steps = 0;
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };

  void open_run(Progress& progress);
  void train_step();
  void report(Progress& progress);
  Evaluation evaluate();  // of the averaged weights, where there are any
  void average_buffers();  // batch-norm statistics, over the ranks
  Evaluation evaluate_model();
  std::vector<std::string> gather_remarks();  // collective: of all ranks' sources, each once
  void save(const Evaluation& last, Progress& progress);
  int64_t epoch() const { return (step_ - 1) / steps_per_epoch_ + 1; }  // from 1
  bool leader() const { return comm_.rank == 0; }

  TrainConfig config_;
  const ImageData& data_;
  Communicator& comm_;
  data::Loader train_, test_;
  std::unique_ptr<ResNet> model_;
  int64_t steps_per_epoch_, total_steps_;
  Schedule schedule_;
  std::unique_ptr<Ema> ema_;  // null: not wanted
  std::unique_ptr<DataParallel> replica_;

  int64_t step_ = 0;
  double last_loss_ = 0;
  Tally tally_;
  std::chrono::steady_clock::time_point started_;
  double evaluating_s_ = 0;
  std::string run_dir_;
  std::unique_ptr<RunLog> log_;  // rank 0
};

}  // namespace godwit::apps
