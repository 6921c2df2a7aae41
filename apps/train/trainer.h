// Trainer: one rank's part of a training run: steps, evaluation, replica checks, logging and saved weights.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "apps/config/program.h"
#include "apps/report/convolution_notices.h"
#include "apps/report/progress.h"
#include "apps/report/run_log.h"
#include "apps/report/run_summary.h"
#include "apps/report/run_trace.h"
#include "apps/train/task.h"
#include "engine/graph.h"
#include "optim/checkpoint.h"
#include "optim/data_parallel.h"
#include "optim/ema.h"
#include "optim/schedule.h"
#include "optim/spike_guard.h"

namespace godwit::apps {

class Trainer {
 public:
  // Collective. The references must outlive the trainer. On rank 0, replaces auto in `config` by the picked values.
  Trainer(const Program& program, CommonConfig& config, Task& task, Communicator& comm);
  ~Trainer();

  // Trains to the end and returns the last evaluation. Rank 0 writes the run directory and reports to `progress`. If a
  // rank is interrupted or metrics cannot be written, all ranks stop after the same step (the current step of some
  // rank) and save without evaluating. An interrupt ends an evaluation before its next batch. Throws at the end if
  // files could not be written.
  Evaluation run(Progress& progress);
  bool stopped() const { return stopped_; }  // whether the run stopped before its end

 private:
  // Sums over this rank's samples since the last report.
  struct StepAccumulator {
    double correct = 0, answers = 0, samples = 0;
    double bytes_intra = 0, bytes_inter = 0;
    TimeSplit times;  // times of this rank
    int64_t steps = 0;
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };

  void open_run(Progress& progress);
  std::vector<std::string> warnings() const;
  std::string nan_hint() const;
  Rows rows() const;  // rows printed at the start of the run
  // Whether to continue with the next step or evaluation. Sets stopped_. Saves a checkpoint if wants_checkpoint().
  bool may_continue(Progress& progress);
  bool any_rank(bool own, std::string_view phase);  // collective: whether `own` is true on some rank
  void train_step(Progress& progress);
  void notice_convolutions(Progress& progress);
  // Runs all micro-batches of a step. Returns the times of the computing thread, including communication on this
  // thread.
  TimeSplit forward_and_backward();
  // Forward and backward pass of one micro-batch. Adds the time of the forward pass to forward_s.
  // captured_forward_backward() runs both through CUDA graphs.
  Forward forward_backward(int micro_batch, double& forward_s);
  Forward captured_forward_backward(int micro_batch);
  // Adds the loss to last_loss_, a mean over the micro-batches, and the correct answers to the accumulator. On a GPU,
  // the host reads these values with the checks of the step.
  void read(const Forward& forward, int micro_batch);
  void finish_checks();  // waits until a GPU has finished the step; last_loss_ and the accumulator are then complete
  void skipped(Progress& progress);         // handles a step that all ranks skipped
  std::string spike(double gradient_norm);  // collective: reason why the step is refused; "" if it is not
  void roll_back(Progress& progress);       // collective: restores the state of the last checkpoint
  void report(Progress& progress);          // collective
  void show(const StepMetrics& metrics, Progress& progress);
  bool checks_replicas() const { return config_.check_replicas > 0 && comm_.topology.world() > 1; }
  void check_replicas();  // collective; throws if replicas differ
  // Checkpoints are in run_dir/checkpoints/step-N. The functions are collective unless the comment states otherwise.
  void find_resumed();  // sets resumed_
  void resume();
  // Throws if an option by which frozen means are corrected differs from its saved value.
  void check_saved_options(const std::map<std::string, double>& numbers) const;
  // Restores the best evaluation if its figure is checkpoint.best.
  void resume_best(int64_t step, const std::map<std::string, double>& numbers);
  void checkpoint(Progress& progress);         // begins a checkpoint, which is written in the background
  void finish_checkpoint(Progress& progress);  // waits for the pending checkpoint
  // Not collective. On rank 0, once the pending checkpoint is complete: reports it and removes old checkpoints.
  void announce_checkpoint(Progress& progress);
  void no_checkpoint(int64_t step, const std::string& reason, Progress& progress);  // not collective: reports a failure
  void checkpoint_if_due(Progress& progress);
  void check_best() const;                   // throws if the evaluations have no figure checkpoint.best
  void note_best(const Evaluation& result);  // a new best makes a checkpoint due
  bool wants_checkpoint();  // not collective: whether a signal or the interval requires a checkpoint
  void remove_partial_checkpoints() const;
  bool ends_epoch() const { return step_ % steps_per_epoch_ == 0 || step_ == total_steps_; }
  bool evaluates() const {  // whether an evaluation follows this step
    const int64_t every = task_.evaluate_every();
    return ends_epoch() || (every > 0 && step_ % every == 0);
  }
  void evaluate_epoch(Evaluation& last, Progress& progress);  // sets stopped_ if a stop signal ends the evaluation
  CheckpointExtras extras() const;
  void gather_averages();       // brings the averages of all shards to this rank
  void synchronize_for_eval();  // brings replicas and averages to the state that is evaluated and saved
  // Evaluates the averaged weights if enabled. Returns nothing if a rank received a stop signal.
  std::optional<Evaluation> evaluate();
  std::string evaluated_set() const { return config_.validation > 0 ? "validation" : "test"; }
  std::string name_in_metrics(const std::string& figure) const;  // with validation, test_… is validation_…
  std::vector<std::string> figure_names() const;  // names in metrics.jsonl of the figures of an evaluation
  // The figures of a result, by name in metrics.jsonl. Throws if the names are not figure_names().
  std::vector<std::pair<std::string, double>> figures(const Evaluation& result) const;
  void report(const Evaluation& result, Progress& progress);
  // On rank 0: calls f(), which writes a file or prints. Stores the first Error.
  void write(const std::function<void()>& f);
  void save_model(const std::string& which, Progress& progress);
  void save(const Evaluation& last, Progress& progress);
  void show_closing(const std::string& exchanged, const std::set<std::string>& damaged, Progress& progress);
  void write_trace();                                                   // collective
  int64_t epoch() const { return (step_ - 1) / steps_per_epoch_ + 1; }  // starts at 1
  bool leader() const { return comm_.rank == 0; }

  const Program& program_;
  const CommonConfig& config_;
  Task& task_;
  Communicator& comm_;
  int64_t steps_per_epoch_, total_steps_;
  Schedule schedule_;
  std::unique_ptr<Ema> ema_;  // null if disabled
  std::unique_ptr<DataParallel> replica_;
  std::unique_ptr<CudaGraphCache> graphs_;          // null if disabled
  std::map<std::vector<int64_t>, Forward> passes_;  // outputs of the captured pass, by batch key
  int64_t replayed_ = 0;                            // number of replayed micro-batches

  int64_t step_ = 0;
  bool stopped_ = false;
  double last_loss_ = 0;
  std::vector<Tensor> buffers_, buffers_before_;  // buffers_before_: backup for skipped steps
  int64_t skipped_in_a_row_ = 0;
  std::unique_ptr<SpikeGuard> spike_guard_;  // null if disabled
  bool guard_is_new_ = false;                // the guard begins anew with this process
  bool spike_found_ = false;                 // a spike was found in this step
  int64_t spikes_ = 0;                       // number of refused steps
  int64_t replica_checks_ = 0;               // number of passed checks
  std::string resumed_;                      // the checkpoint that the run continues; empty: a new run
  int64_t first_step_ = 0;                   // the last step before this process
  std::string redistributed_;                // notice of load_checkpoint()
  std::vector<std::string> unused_;          // names of saved state that this run does not use
  std::vector<std::string> resume_notices_;  // further notices about the resume; on rank 0
  double load_s_ = 0;                        // duration of the load
  // The checkpoint that is being written, its step, and the time that training waited for it. Null: none.
  std::unique_ptr<PendingCheckpoint> pending_;
  std::jthread reserve_;  // runs reserve_checkpoint_memory()
  int64_t pending_step_ = 0;
  double pending_wait_s_ = 0;
  bool announced_ = true;
  int64_t saved_step_ = 0;  // step of the last checkpoint that was started
  std::chrono::steady_clock::time_point saved_at_;
  bool checkpoint_due_ = false;
  struct Best {
    int64_t step = 0;  // 0: none
    double value = 0;
  };
  // Only on the leader: the best evaluation, the best one with a complete checkpoint, and the last one that was the
  // best when its checkpoint was written.
  Best best_, saved_best_, pending_best_;
  int64_t evaluated_step_ = 0;           // step of the last evaluation
  std::optional<int64_t> metrics_size_;  // size of metrics.jsonl that a resumed run keeps, in bytes
  TimeSplit all_times_;                  // sums over all steps of this rank
  std::unique_ptr<RunTrace> trace_;
  StepAccumulator accumulator_;
  ConvolutionNotices convolutions_;
  std::chrono::steady_clock::time_point started_;
  double evaluating_s_ = 0;
  std::string run_dir_;
  std::string weights_dir_;      // run_dir_, or the fallback folder
  std::string write_error_;      // only on rank 0
  RunLock lock_;                 // of a resumed run, until log_ exists
  std::unique_ptr<RunLog> log_;  // only on rank 0
};

}  // namespace godwit::apps
