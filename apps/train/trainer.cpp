#include "apps/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "apps/train/interrupt.h"
#include "apps/train/measured_options.h"
#include "comm/gather.h"
#include "comm/host_tensor.h"
#include "engine/clock.h"
#include "engine/profile.h"

namespace godwit::apps {
namespace {

struct Abandoned {};  // thrown in an evaluation after a stop signal

// Steps per epoch. The last micro-batches are dropped if they do not fill a step.
int64_t steps_of_epoch(const CommonConfig& config, int64_t batches) {
  check(config.accumulation <= batches, "accumulation: ", config.accumulation,
        " micro-batches per step, but a worker has ", batches, batches == 1 ? " batch" : " batches",
        " in an epoch; lower --accumulation or --batch");
  return batches / config.accumulation;
}

int64_t planned_steps(const CommonConfig& config, int64_t steps_per_epoch) {
  const int64_t all = config.epochs * steps_per_epoch;
  return config.max_steps > 0 ? std::min(config.max_steps, all) : all;
}

}  // namespace

Trainer::Trainer(const Program& program, CommonConfig& config, Task& task, Communicator& comm)
    : program_(program),
      config_(config),
      task_(task),
      comm_(comm),
      steps_per_epoch_(steps_of_epoch(config, task.batches())),
      total_steps_(planned_steps(config, steps_per_epoch_)),
      schedule_(config.schedule, config.optimizer.number("lr"), steps_per_epoch_, total_steps_) {
  check_best();
  DataParallelOptions options{.optimizer = for_run(config.optimizer, schedule_, total_steps_),
                              .exchange = config.exchange,
                              .seed = config.seed};
  options.clip_norm = config.clip.norm;
  options.skip_not_finite = config.non_finite == "skip";
  if (config.spike.guard != "off") {
    spike_guard_ = std::make_unique<SpikeGuard>(config.spike.z, config.spike.window);
    options.refuse_step = [this](double gradient_norm) { return spike(gradient_norm); };
  }
  options.updated = [this](const Bucket& bucket, const StepInfo& step) {
    if (ema_) ema_->update(bucket, step.step);
  };
  pick_measured_options(config, task, comm, options);
  replica_ = std::make_unique<DataParallel>(task.model().parameters(), comm, options);
  for (const nn::NamedTensor& buffer : task.model().buffers()) buffers_.push_back(buffer.tensor);
  if (options.skip_not_finite || spike_guard_)
    for (const Tensor& buffer : buffers_) buffers_before_.push_back(buffer.clone());
  if (config.cuda_graph) graphs_ = std::make_unique<CudaGraphCache>();
  if (config.ema.decay > 0) {
    const auto begin = [&] { ema_ = std::make_unique<Ema>(replica_->updated_buckets(), buffers_, config.ema.decay); };
    // With zero1 and zero2, parameters are rounded, but averages begin with the master weights. The shards of zero3 and
    // hybrid are master weights.
    shards_parameters(replica_->sharding()) ? begin() : replica_->with_master_weights(begin);
  }
}

Trainer::~Trainer() {
  if (leader()) silence_interrupts();  // signals have no effect from here on
}

Evaluation Trainer::run(Progress& progress) {
  open_run(progress);
  Evaluation last;
  bool check_due = false;
  // All ranks write checkpoints there.
  run_dir_ = gather_texts(*comm_.world, {run_dir_}, "checkpoint/run_dir").front().front();
  // A run that was interrupted between a step and its evaluation.
  if (first_step_ > 0 && evaluates() && evaluated_step_ != step_) evaluate_epoch(last, progress);
  if (first_step_ == 0) accumulator_.since = Clock::now();
  if (step_ < total_steps_)
    task_.start_epoch(step_ / steps_per_epoch_, step_ % steps_per_epoch_ * config_.accumulation);
  for (int64_t e = step_ / steps_per_epoch_; step_ < total_steps_ && !stopped_; ++e) {
    task_.model().train();
    for (int64_t s = step_ % steps_per_epoch_; s < steps_per_epoch_ && step_ < total_steps_; ++s) {
      if (stopped_ || (step_ != first_step_ && !may_continue(progress))) break;
      const auto begun = Clock::now();
      trace_->begin_step(++step_);
      train_step(progress);
      if (step_ == first_step_ + 1 && (config_.checkpoint.steps() > 0 || config_.checkpoint.seconds() > 0))
        reserve_ = reserve_checkpoint_memory(*replica_, comm_, extras());
      notice_convolutions(progress);
      check_due = check_due || (checks_replicas() && step_ % config_.check_replicas == 0);
      if (check_due && replica_->synchronized()) check_replicas(), check_due = false;
      if (step_ == 1 || step_ % config_.log_every == 0 || step_ == total_steps_) report(progress);
      if (const int64_t every = config_.checkpoint.steps(); every > 0 && step_ % every == 0) checkpoint_due_ = true;
      if (step_ == total_steps_ && config_.checkpoint.at_end) checkpoint_due_ = true;
      checkpoint_if_due(progress);
      announce_checkpoint(progress);
      if (trace_->end_step(step_)) write_trace();
      all_times_.total += seconds_since(begun);
      if (evaluates() && !ends_epoch()) evaluate_epoch(last, progress);
    }
    if (stopped_ || !may_continue(progress)) break;
    if (step_ < total_steps_) task_.start_epoch(e + 1);  // prefetches the next epoch during the evaluation
    evaluate_epoch(last, progress);
  }
  if (stopped_ && saved_step_ < step_ && step_ > first_step_) checkpoint(progress);
  if (!stopped_ && saved_step_ < step_ && any_rank(take_checkpoint_signal(), "checkpoint/all_reduce"))
    checkpoint(progress);
  finish_checkpoint(progress);
  if (accumulator_.steps > 0 && stopped_ && step_ > first_step_) report(progress);
  if (stopped_) synchronize_for_eval();
  else if (step_ == first_step_) gather_averages();  // a complete run was resumed, and may not have been evaluated
  if (checks_replicas()) check_replicas();
  save(last, progress);
  return last;
}

void Trainer::evaluate_epoch(Evaluation& last, Progress& progress) {
  finish_checks();
  const ProfileRange range("evaluation", -1, ProfileRange::Of::run);
  const auto before = Clock::now();
  const std::optional<Evaluation> result = evaluate();
  evaluating_s_ += seconds_since(before);
  accumulator_.since += Clock::now() - before;
  task_.model().train();
  notice_convolutions(progress);
  if (!result) {
    stopped_ = true;
    if (leader())
      progress.line(detail::concat("the evaluation after step ", step_, " is abandoned; --resume repeats it"));
    return;
  }
  last = *result;
  // Only the first figure, usually the loss, must be finite. Others, such as perplexities, may overflow.
  if (const auto all = figures(last); !all.empty())
    check(std::isfinite(all.front().second), "step ", step_, ": ", all.front().first, " is ", all.front().second,
          nan_hint());
  if (leader()) report(last, progress);
  evaluated_step_ = step_;
  note_best(last);
  checkpoint_if_due(progress);
}

void Trainer::check_replicas() {
  replica_->check_replicas();
  ++replica_checks_;
}

// All ranks stop, or save a checkpoint, after the same step. Local steps are completed first: until then the replicas
// differ and cannot be saved.
bool Trainer::may_continue(Progress& progress) {
  const auto ends = [&] { return interrupted() != 0 || !write_error_.empty(); };
  if (comm_.world->control()->may_continue(ends() || wants_checkpoint()) || !replica_->synchronized()) return true;
  if (any_rank(ends(), "stop/all_reduce")) {
    stopped_ = true;
    return false;
  }
  take_checkpoint_signal();  // the launcher may have signaled every rank
  continue_steps(*comm_.world);
  checkpoint_due_ = true;
  checkpoint_if_due(progress);
  return true;
}

bool Trainer::any_rank(bool own, std::string_view phase) {
  const Tensor count = cpu_tensor<double>({own ? 1.0 : 0.0});
  comm_.world->all_reduce(count, Reduce::sum, phase);
  return count.item(0) > 0;
}

void Trainer::notice_convolutions(Progress& progress) {
  if (!leader()) return;
  for (const std::string& text : convolutions_.fresh()) progress.line("notice: " + text);
}

void Trainer::train_step(Progress& progress) {
  const ProfileRange range("step", step_);
  const CommCount before = comm_.stats->total();
  for (size_t i = 0; i < buffers_before_.size(); ++i) buffers_before_[i].copy_from(buffers_[i]);
  replica_->begin_step(schedule_.lr(step_), config_.accumulation);
  TimeSplit times;
  bool taken = false;
  try {
    times = forward_and_backward();
    const auto finishing = Clock::now();
    const double waited_before = replica_->times().waiting();
    taken = replica_->finish_step();
    // Here the host waits until a GPU has computed the queued passes.
    if (context().device.is_cuda())
      times.backward += std::max(0.0, seconds_since(finishing) - (replica_->times().waiting() - waited_before));
  } catch (const Error&) {
    replica_->find_cause();  // such as a non-finite loss
    throw;
  }
  // The optimizer counts only steps that are not skipped.
  if (const std::string event = replica_->optimizer().event(replica_->steps()); taken && leader() && !event.empty())
    progress.line(detail::concat("step ", step_, ": ", event));
  const StepTimes exchange = replica_->times();
  times += {.exposed_compression = exchange.exposed_compression,
            .exposed_communication = exchange.exposed_communication,
            .exposed_update = exchange.exposed_update,
            .idle = exchange.idle,
            .compression = exchange.compression,
            .communication = exchange.communication,
            .update = exchange.update};
  accumulator_.times += times;
  all_times_ += times;
  if (!taken) skipped(progress);
  else skipped_in_a_row_ = 0;
  if (ema_ && taken) ema_->update_buffers(replica_->steps());
  const CommCount after = comm_.stats->total();
  accumulator_.bytes_intra += static_cast<double>(after.bytes_intra - before.bytes_intra);
  accumulator_.bytes_inter += static_cast<double>(after.bytes_inter - before.bytes_inter);
  ++accumulator_.steps;
}

TimeSplit Trainer::forward_and_backward() {
  const auto start = Clock::now();
  const double exchanged_before = comm_.compute->seconds();
  TimeSplit times;
  for (int i = 0; i < config_.accumulation; ++i) {
    const Forward forward = graphs_ ? captured_forward_backward(i) : forward_backward(i, times.forward);
    accumulator_.answers += forward.answers;
    accumulator_.samples += forward.samples;
    times.data_wait += forward.data_wait_s;
  }
  // Collectives of the computing thread do not overlap with its computation.
  times.communication = times.exposed_communication = comm_.compute->seconds() - exchanged_before;
  const double others = times.forward + times.data_wait + times.communication + replica_->times().waiting();
  times.backward = std::max(0.0, seconds_since(start) - others);
  return times;
}

Forward Trainer::forward_backward(int micro_batch, double& forward_s) {
  const auto start = Clock::now();
  const double exchanged_before = comm_.compute->seconds(), waited_before = replica_->times().waiting();
  const auto next_forward = [&] {
    const ProfileRange range("forward");
    return task_.forward((step_ - 1) * config_.accumulation + micro_batch);
  };
  Forward forward = next_forward();
  read(forward, micro_batch);
  const double computed = seconds_since(start) - forward.data_wait_s - (comm_.compute->seconds() - exchanged_before) -
                          (replica_->times().waiting() - waited_before);  // waiting for sharded parameters
  forward_s += std::max(computed, 0.0);                                   // with NCCL, an exchange counts when it ends
  replica_->backward(forward.loss);
  return forward;
}

// An eager pass reads its outputs before the backward pass, so that an exchange error does not hide the loss. A graph's
// outputs exist after its launch, until the next replay.
Forward Trainer::captured_forward_backward(int micro_batch) {
  LoadedBatch loaded = task_.load_batch((step_ - 1) * config_.accumulation + micro_batch);
  loaded.key.insert(loaded.key.end(), {micro_batch == 0, micro_batch + 1 == config_.accumulation});
  Forward& given = passes_[loaded.key];
  const auto how = graphs_->run(loaded.key, [&] {
    Forward forward = task_.forward_loaded();
    if (!capturing()) read(forward, micro_batch);
    replica_->backward(forward.loss);
    given = std::move(forward);
    given.loss = Var(given.loss.value());
  });
  if (how != CudaGraphCache::How::eager) read(given, micro_batch);
  replayed_ += how == CudaGraphCache::How::replayed;
  Forward result = given;
  result.data_wait_s = loaded.data_wait_s;
  return result;
}

void Trainer::read(const Forward& forward, int micro_batch) {
  replica_->read_with_checks(forward.loss.value(), [this, step = step_, micro_batch](const Tensor& loss) {
    const double value = loss.item();
    check(std::isfinite(value) || config_.non_finite == "skip", "step ", step, ": the loss is ", value, nan_hint());
    last_loss_ = (micro_batch == 0 ? 0 : last_loss_) + value / config_.accumulation;
  });
  for (const Tensor& correct : forward.correct)
    replica_->read_with_checks(correct, [this](const Tensor& count) { accumulator_.correct += count.item(); });
}

void Trainer::finish_checks() {
  const auto start = Clock::now();
  replica_->finish_checks();
  const double waited = seconds_since(start);
  accumulator_.times.backward += waited;
  all_times_.backward += waited;
}

// The batch-norm statistics contain the skipped batch, so they are restored too.
void Trainer::skipped(Progress& progress) {
  constexpr int64_t kShown = 5, kMostInARow = 100;
  const bool by_guard = std::exchange(spike_found_, false);
  for (size_t i = 0; i < buffers_before_.size(); ++i) buffers_[i].copy_from(buffers_before_[i]);
  check(++skipped_in_a_row_ < kMostInARow, "step ", step_, ": ", kMostInARow, " steps in a row were skipped; ",
        replica_->skip_reason(), nan_hint());
  if (by_guard) {
    ++spikes_;
    if (leader()) progress.line(detail::concat("step ", step_, " skipped: ", replica_->skip_reason()));
    if (config_.spike.guard == "rollback") roll_back(progress);
    return;
  }
  const int64_t not_finite = replica_->skipped() - spikes_;
  if (!leader() || not_finite > kShown) return;
  progress.line(detail::concat("step ", step_, " skipped: ", replica_->skip_reason(),
                               not_finite == kShown ? "; further skipped steps are only counted" : ""));
}

std::string Trainer::spike(double gradient_norm) {
  const Tensor loss = cpu_tensor<double>({last_loss_});
  comm_.world->all_reduce(loss, Reduce::mean, "spike/all_reduce");
  const std::string reason = spike_guard_->observe(loss.item(0), gradient_norm);
  spike_found_ = !reason.empty();
  return reason;
}

void Trainer::gather_averages() {
  if (!ema_) return;
  ema_->complete([this](const Bucket& bucket, const Tensor& averages) { replica_->gather(bucket, averages); });
}

void Trainer::synchronize_for_eval() {
  replica_->synchronize();
  task_.average_buffers();
  if (!ema_) return;
  gather_averages();
  ema_->swap();
  task_.average_buffers();
  ema_->swap();
}

// Ranks may have different numbers of batches. After a stop signal to any rank, each rank skips its remaining batches;
// the following collective synchronizes the ranks.
std::optional<Evaluation> Trainer::evaluate() {
  std::vector<Tensor> statistics = buffers_, before;
  if (ema_) statistics.insert(statistics.end(), ema_->buffer_averages().begin(), ema_->buffer_averages().end());
  for (const Tensor& tensor : statistics) before.push_back(tensor.clone());
  synchronize_for_eval();
  if (ema_) ema_->swap();
  const auto read = [&](const std::function<void()>& f) {
    bool abandons = false;
    const auto f_or_stop = [&] {
      try {
        f();
      } catch (const Abandoned&) {
        abandons = true;
      }
    };
    replica_->read_parameters(f_or_stop, /*rounded=*/!ema_);  // averages are not rounded
    if (any_rank(abandons, "evaluation/stop")) throw Abandoned();
  };
  const auto check_stop = [&] {
    if (comm_.world->control()->stop_requested(interrupted() != 0)) throw Abandoned();
  };
  std::optional<Evaluation> result;
  try {
    result = task_.evaluate(read, check_stop);
  } catch (const Abandoned&) {
  }
  if (ema_) ema_->swap();
  // After a stop, the resumed run averages the statistics of the ranks again. The mean of equal values may round, so
  // each rank gets its own statistics back.
  for (size_t i = 0; !result && i < statistics.size(); ++i) statistics[i].copy_from(before[i]);
  return result;
}

}  // namespace godwit::apps
