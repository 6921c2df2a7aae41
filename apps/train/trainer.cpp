#include "apps/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <set>
#include <sstream>

#include "apps/train/device_sum.h"
#include "apps/train/interrupt.h"
#include "apps/train/save_weights.h"
#include "comm/gather.h"
#include "comm/host_tensor.h"
#include "comm/transport/group_nccl.h"
#include "engine/clock.h"
#include "engine/excerpt.h"
#include "engine/gpu.h"
#include "engine/kernel_library.h"
#include "engine/profile.h"

namespace godwit::apps {
namespace {

BucketOptions bucket_options(const CommonConfig& config) {
  const auto bytes = [](double mib) { return std::max<int64_t>(1, std::llround(mib * (1 << 20))); };
  BucketOptions options;
  options.first_bytes = bytes(config.bucket.first_mib);
  options.bytes = bytes(config.bucket.mib);
  return options;
}

// Drops the micro-batches at the end of an epoch that do not fill a step.
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

std::string kernels() { return context().device.is_cuda() ? gpu_name() : kernel_library(); }

// "1.2 GB", or with a GPU "1.2 GB, of its GPU 3.4 GB".
std::string peak_memory() {
  std::string text = human_bytes(static_cast<double>(context().pool->stats().peak_bytes_in_use));
  if (context().device.is_cuda()) text += ", of its GPU " + human_bytes(static_cast<double>(peak_gpu_bytes()));
  return text;
}

}  // namespace

Trainer::Trainer(const Program& program, const CommonConfig& config, Task& task, Communicator& comm)
    : program_(program),
      config_(config),
      task_(task),
      comm_(comm),
      steps_per_epoch_(steps_of_epoch(config, task.batches())),
      total_steps_(planned_steps(config, steps_per_epoch_)),
      schedule_(config.schedule, config.optimizer.number("lr"), steps_per_epoch_, total_steps_) {
  DataParallelOptions options{.optimizer = for_run(config.optimizer, schedule_, total_steps_),
                              .exchange = config.exchange,
                              .seed = config.seed};
  options.buckets = bucket_options(config);
  options.clip_norm = config.clip.norm;
  options.skip_not_finite = config.non_finite == "skip";
  if (config.spike.guard != "off") {
    spike_guard_ = std::make_unique<SpikeGuard>(config.spike.z, config.spike.window);
    options.refuse_step = [this](double gradient_norm) { return spike(gradient_norm); };
  }
  options.updated = [this](const Bucket& bucket, const StepInfo& step) {
    if (ema_) ema_->update(bucket, step.step);
  };
  replica_ = std::make_unique<DataParallel>(task.model().parameters(), comm, options);
  for (const nn::NamedTensor& buffer : task.model().buffers()) buffers_.push_back(buffer.tensor);
  if (options.skip_not_finite || spike_guard_)
    for (const Tensor& buffer : buffers_) buffers_before_.push_back(buffer.clone());
  if (config.cuda_graph) graphs_ = std::make_unique<CudaGraphCache>();
  if (config.ema.decay > 0) ema_ = std::make_unique<Ema>(replica_->buckets(), buffers_, config.ema.decay);
}

Trainer::~Trainer() {
  if (leader()) silence_interrupts();  // no longer stop anything
}

void Trainer::open_run(Progress& progress) {
  started_ = saved_at_ = Clock::now();
  find_resumed();
  if (!resumed_.empty()) resume();
  if (!leader()) {
    if (uses_mpi(config_)) catch_interrupts("", "");  // an MPI rank is a separate process
    return;
  }
  const auto busy = comm_.world->busy();
  const std::string name = task_.name() + "-" + config_.optimizer.name();
  run_dir_ = weights_dir_ = create_run_dir(config_.run_dir, name, metrics_size_.has_value());
  check(metrics_size_ || checkpoints_in(run_dir_ + "/checkpoints").empty(), "run directory ", run_dir_,
        ": has checkpoints of another run; choose another --run-dir, or continue it with --resume ", run_dir_);
  log_ = std::make_unique<RunLog>(run_dir_, to_json(config_, false), metrics_size_);
  task_.on_run_start(run_dir_);
  // A launcher forwards Ctrl-C as SIGTERM. If a rank has died, the launcher also sends SIGTERM, soon followed by
  // SIGKILL.
  const std::string more = uses_mpi(config_) ? "if another rank has died, the launcher ends this one before that"
                                             : "a second signal ends the run at once";
  catch_interrupts("stopping after the current step to save the weights; " + more,
                   "ended without saving; the run directory is " + run_dir_);
  progress.line(summary(config_, rows()));
  if (!resumed_.empty())
    progress.line(
        detail::concat("continues after step ", first_step_, ": ", resumed_, ", loaded in ", human_duration(load_s_)));
  for (const std::string& notice : warnings()) progress.line("notice: " + notice);
}

// Notices about unexpected consequences of the settings or the machine.
std::vector<std::string> Trainer::warnings() const {
  std::vector<std::string> all = config_.notices;
  if (!redistributed_.empty()) all.push_back(redistributed_);
  if (!unused_.empty())
    all.push_back("the checkpoint has state that this run does not use: " + excerpts(unused_, unused_.size()));
  const ExchangeConfig& exchange = config_.exchange;
  if (config_.dtype == "bf16" && context().device == kCpu && !native_bf16())
    all.push_back(kernel_library() + " has no bfloat16 instructions here; --dtype bf16 will be slower than f32");
  if (config_.device == "cuda" && !config_.share_gpu && config_.nccl && !nccl_built() && comm_.topology.world() > 1)
    all.push_back(
        "this build has no NCCL: GPUs access each other's memory within a process, and use host memory between "
        "processes; install libnccl-dev and configure again");
  int64_t kept = 0;
  for (const StateTensor& part : replica_->optimizer().exchange_state()) kept += part.values.bytes();
  if (exchange.sharding != Sharding::none && kept > 0)
    all.push_back(detail::concat("sharding ", exchange.text("sharding"), " does not divide the state of ",
                                 exchange.name(), ": every worker keeps ", human_bytes(static_cast<double>(kept)),
                                 " for all parameters; the exchanges dense and zeropp keep no state"));
  int64_t sent = 0;  // values sent by the sharded exchange; messages have the size of the largest shard
  for (const Bucket& bucket : replica_->buckets()) {
    int64_t longest = 0;
    for (const Segment& shard : bucket.shards) longest = std::max(longest, shard.numel());
    sent += longest * std::ssize(bucket.shards);
  }
  if (const double times = static_cast<double>(sent) / static_cast<double>(replica_->buckets().numel());
      exchange.sharding != Sharding::none && times > 1.5)
    all.push_back(detail::concat(
        "shards differ in size, because parameters or blocks are not split, and messages have the largest size: ",
        std::round(10 * times) / 10, " values are sent per parameter; exchange.sharding=none sends fewer"));
  const auto add = [&](const std::vector<std::string>& lines) { all.insert(all.end(), lines.begin(), lines.end()); };
  const OptimizerMethod& method = config_.optimizer.method();
  if (method.notices) add(method.notices(for_run(config_.optimizer, schedule_, total_steps_).options(), total_steps_));
  if (!method.communicates_itself && exchange.method().notices) add(exchange.method().notices(exchange.options()));
  return all;
}

// Remedies for a non-finite loss.
std::string Trainer::nan_hint() const {
  const std::string& hint = config_.optimizer.method().divergence_hint;
  return "; lower --lr or warm it up (--set schedule.warmup_fraction=0.1)" + (hint.empty() ? "" : "; " + hint);
}

Rows Trainer::rows() const {
  int64_t state_bytes = 0;
  for (const auto& parts : {replica_->optimizer().state(), replica_->master_state()})
    for (const StateTensor& state : parts) state_bytes += state.values.bytes();
  std::ostringstream model, run;
  const Buckets& buckets = replica_->buckets();
  model << buckets.numel() << " in " << buckets.size() << (buckets.size() == 1 ? " bucket" : " buckets")
        << "; optimizer state of this worker: " << human_bytes(static_cast<double>(state_bytes));
  run << total_steps_ << " of " << task_.batch_samples() * config_.accumulation * comm_.topology.world() << " " << task_.unit()
      << ", " << steps_per_epoch_ << " an epoch";
  Rows rows = task_.notes();
  rows.insert(rows.end(), {{"parameters", model.str()},
                           {"steps", run.str()},
                           {"kernels", kernels() + ", threads per worker: " + std::to_string(context().threads)},
                           {"run directory", run_dir_}});
  return rows;
}

Evaluation Trainer::run(Progress& progress) {
  open_run(progress);
  Evaluation last;
  bool check_due = false;
  // All ranks write checkpoints there.
  run_dir_ = gather_texts(*comm_.world, {run_dir_}, "checkpoint/run_dir").front().front();
  // A run that was interrupted between the end of an epoch and its evaluation.
  if (first_step_ > 0 && ends_epoch() && evaluated_step_ != step_) evaluate_epoch(last, progress);
  if (step_ < total_steps_)
    task_.start_epoch(step_ / steps_per_epoch_, step_ % steps_per_epoch_ * config_.accumulation);
  for (int64_t e = step_ / steps_per_epoch_; step_ < total_steps_; ++e) {
    task_.model().train();
    if (step_ % steps_per_epoch_ == 0) accumulator_ = StepAccumulator();
    for (int64_t s = step_ % steps_per_epoch_;
         s < steps_per_epoch_ && step_ < total_steps_ && (step_ == first_step_ || may_continue(progress)); ++s) {
      ++step_;
      train_step(progress);
      notice_convolutions(progress);
      check_due = check_due || (config_.check_replicas > 0 && step_ % config_.check_replicas == 0);
      if (check_due && replica_->synchronized()) check_replicas(), check_due = false;
      if (step_ == 1 || step_ % config_.log_every == 0 || step_ == total_steps_) report(progress);
      if (const int64_t every = config_.checkpoint.steps(); every > 0 && step_ % every == 0) checkpoint_due_ = true;
      if (step_ == total_steps_ && config_.checkpoint.enabled()) checkpoint_due_ = true;
      checkpoint_if_due(progress);
      announce_checkpoint(progress);
    }
    if (stopped_ || !may_continue(progress)) break;
    if (step_ < total_steps_) task_.start_epoch(e + 1);  // prefetches the next epoch during the evaluation
    evaluate_epoch(last, progress);
  }
  if (stopped_ && saved_step_ < step_ && step_ > first_step_) checkpoint(progress);
  finish_checkpoint(progress);
  if (accumulator_.steps > 0 && stopped_) report(progress);
  if (stopped_) synchronize_for_eval();
  if (config_.check_replicas > 0) check_replicas();
  save(last, progress);
  return last;
}

void Trainer::evaluate_epoch(Evaluation& last, Progress& progress) {
  const auto before = Clock::now();
  last = evaluate();
  evaluating_s_ += seconds_since(before);
  notice_convolutions(progress);
  check(std::isfinite(last.loss.value_or(0)), "step ", step_, ": the test loss is ", last.loss.value_or(0), nan_hint());
  if (leader()) report(last, progress);
  evaluated_step_ = step_;
  note_best(last, progress);
  checkpoint_if_due(progress);
}

void Trainer::check_replicas() {
  replica_->check_replicas();
  ++replica_checks_;
}

// Ranks that are asked to stop, or for a checkpoint, do so after the same step. Local steps are completed first: in
// between the replicas differ and cannot be saved.
bool Trainer::may_continue(Progress& progress) {
  const auto ends = [&] { return interrupted() != 0 || !write_error_.empty(); };
  if (comm_.world->may_continue(ends() || wants_checkpoint()) || !replica_->synchronized()) return true;
  const Tensor ending = cpu_tensor<double>({ends() ? 1.0 : 0.0});
  comm_.world->all_reduce(ending, Reduce::sum, "stop/all_reduce");
  if (ending.item(0) > 0) {
    stopped_ = true;
    return false;
  }
  take_checkpoint_signal();  // a launcher may have sent it to every rank
  comm_.world->continue_steps();
  checkpoint_due_ = true;
  checkpoint_if_due(progress);
  return true;
}

void Trainer::notice_convolutions(Progress& progress) {
  if (!leader()) return;
  for (const std::string& text : convolutions_.fresh()) progress.line("notice: " + text);
}

void Trainer::train_step(Progress& progress) {
  const auto start = Clock::now();
  const CommCount before = comm_.stats->total();
  for (size_t i = 0; i < buffers_before_.size(); ++i) buffers_before_[i].copy_from(buffers_[i]);
  replica_->begin_step(schedule_.lr(step_), config_.accumulation);
  const double waited = forward_and_backward();
  const bool taken = replica_->finish_step();
  // The optimizer counts the steps that are taken.
  if (const std::string event = replica_->optimizer().event(replica_->steps()); taken && leader() && !event.empty())
    progress.line(detail::concat("step ", step_, ": ", event));
  accumulator_.data_wait_s += waited;
  const StepTimes& times = replica_->times();
  const double computation = seconds_since(start) - waited - times.waiting;
  accumulator_.computation_s += computation;
  accumulator_.times += times;
  all_times_ += {computation, times.waiting, times.idle, times.compression, times.communication, times.update};
  if (!taken) skipped(progress);
  else skipped_in_a_row_ = 0;
  if (ema_ && taken) ema_->update_buffers(replica_->steps());
  const CommCount after = comm_.stats->total();
  accumulator_.bytes_intra += static_cast<double>(after.bytes_intra - before.bytes_intra);
  accumulator_.bytes_inter += static_cast<double>(after.bytes_inter - before.bytes_inter);
  ++accumulator_.steps;
}

// On a GPU, reads the losses once almost the whole step is queued; the host would wait there in any case.
double Trainer::forward_and_backward() {
  std::vector<Tensor> losses;
  DeviceSum correct;
  double waited = 0;
  try {
    for (int i = 0; i < config_.accumulation; ++i) {
      const Forward forward = graphs_ ? captured_forward_backward(i, losses) : forward_backward(i, losses);
      correct.add(forward.correct);
      accumulator_.answers += forward.answers;
      accumulator_.samples += forward.samples;
      waited += forward.data_wait_s;
    }
  } catch (const Error&) {
    read_losses(losses);  // report a non-finite loss first; it causes the non-finite gradient
    throw;
  }
  read_losses(losses);
  accumulator_.correct += correct.sum();
  return waited;
}

Forward Trainer::forward_backward(int micro_batch, std::vector<Tensor>& losses) {
  const auto next_forward = [&] {
    const ProfileRange range("forward");
    return task_.forward((step_ - 1) * config_.accumulation + micro_batch);
  };
  Forward forward = next_forward();
  losses.push_back(forward.loss.value());
  if (context().device == kCpu) read_losses(losses);
  replica_->backward(forward.loss);
  return forward;
}

// Copies the outputs, because the next replay overwrites them. A pass that fails during capture has computed nothing.
Forward Trainer::captured_forward_backward(int micro_batch, std::vector<Tensor>& losses) {
  LoadedBatch loaded = task_.load_batch((step_ - 1) * config_.accumulation + micro_batch);
  loaded.key.insert(loaded.key.end(), {micro_batch == 0, micro_batch + 1 == config_.accumulation});
  Forward& given = passes_[loaded.key];
  if (graphs_->captured(loaded.key)) losses.push_back(given.loss.value());
  const auto how = graphs_->run(loaded.key, [&] {
    Forward forward = task_.forward_loaded();
    if (!capturing()) losses.push_back(forward.loss.value());
    replica_->backward(forward.loss);
    given = std::move(forward);
    given.loss = Var(given.loss.value());
  });
  replayed_ += how == CudaGraphCache::How::replayed;
  Forward result = given;
  losses.resize(static_cast<size_t>(micro_batch));
  losses.push_back(given.loss.value().clone());
  for (Tensor& correct : result.correct) correct = correct.clone();
  result.data_wait_s = loaded.data_wait_s;
  return result;
}

void Trainer::read_losses(const std::vector<Tensor>& losses) {
  last_loss_ = 0;
  for (const Tensor& loss : losses) {
    const double value = loss.item();
    check(std::isfinite(value) || config_.non_finite == "skip", "step ", step_, ": the loss is ", value, nan_hint());
    last_loss_ += value / config_.accumulation;
  }
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
  if (!leader() || replica_->skipped() > kShown) return;
  progress.line(detail::concat("step ", step_, " skipped: ", replica_->skip_reason(),
                               replica_->skipped() == kShown ? "; further skipped steps are only counted" : ""));
}

std::string Trainer::spike(double gradient_norm) {
  const Tensor loss = cpu_tensor<double>({last_loss_});
  comm_.world->all_reduce(loss, Reduce::mean, "spike/all_reduce");
  const std::string reason = spike_guard_->look(loss.item(0), gradient_norm);
  spike_found_ = !reason.empty();
  return reason;
}

// The loss is of the current step, averaged over the ranks. Accuracy, bytes and rate cover the steps since the last
// report.
void Trainer::report(Progress& progress) {
  const StepTimes& times = accumulator_.times;
  const Tensor sums = cpu_tensor<double>({last_loss_, accumulator_.correct, accumulator_.answers, accumulator_.samples,
                                          accumulator_.bytes_intra, accumulator_.bytes_inter, accumulator_.data_wait_s,
                                          accumulator_.computation_s, times.waiting, times.compression,
                                          times.communication, times.update, times.idle});
  comm_.world->all_reduce(sums, Reduce::sum, "metrics/all_reduce");
  if (leader()) {
    const double steps = static_cast<double>(accumulator_.steps), elapsed = seconds_since(accumulator_.since);
    const int world = comm_.world->size();
    const auto mean_s = [&](int64_t i) { return sums.item(i) / steps / world; };
    StepMetrics metrics{.step = step_,
                        .epoch = epoch(),
                        .loss = sums.item(0) / world,
                        .lr = schedule_.lr(step_),
                        .samples_per_s = sums.item(3) / elapsed,
                        .step_s = elapsed / steps,
                        .bytes_intra = sums.item(4) / steps,
                        .bytes_inter = sums.item(5) / steps,
                        .data_wait_s = mean_s(6),
                        .times = TimeSplit{.computation = mean_s(7),
                                           .waiting = mean_s(8),
                                           .idle = mean_s(12),
                                           .compression = mean_s(9),
                                           .communication = mean_s(10),
                                           .update = mean_s(11)}};
    if (config_.clip.norm > 0) metrics.grad_norm = replica_->gradient_norm();
    if (config_.non_finite == "skip") metrics.skipped = replica_->skipped();
    write([&] { log_->step(metrics); });
    const double training_s = seconds_since(started_) - evaluating_s_;
    ProgressState state;
    state.step = step_;
    state.steps = total_steps_;
    state.epoch = epoch();
    state.epochs = (total_steps_ - 1) / steps_per_epoch_ + 1;
    state.loss = metrics.loss;
    if (sums.item(2) > 0) state.accuracy = sums.item(1) / sums.item(2);
    state.samples_per_s = metrics.samples_per_s;
    state.bytes_intra = metrics.bytes_intra;
    state.bytes_inter = metrics.bytes_inter;
    state.seconds_left =
        training_s / static_cast<double>(step_ - first_step_) * static_cast<double>(total_steps_ - step_);
    state.unit = task_.unit();
    write([&] { progress.update(state); });
  }
  accumulator_ = StepAccumulator();
}

void Trainer::synchronize_for_eval() {
  replica_->synchronize();
  task_.average_buffers();
  if (!ema_) return;
  ema_->complete([this](const Bucket& bucket, const Tensor& averages) { replica_->gather(bucket, averages); });
  ema_->swap();
  task_.average_buffers();
  ema_->swap();
}

Evaluation Trainer::evaluate() {
  synchronize_for_eval();
  if (!ema_) return task_.evaluate();
  ema_->swap();
  const Evaluation result = task_.evaluate();
  ema_->swap();
  return result;
}

std::vector<std::pair<std::string, double>> Trainer::figures(const Evaluation& result) const {
  std::vector<std::pair<std::string, double>> all;
  if (result.loss) all.emplace_back(evaluated_set() + "_loss", *result.loss);
  for (const auto& [name, value] : result.metrics)
    all.emplace_back(name.starts_with("test_") ? evaluated_set() + name.substr(4) : name, value);
  return all;
}

void Trainer::report(const Evaluation& result, Progress& progress) {
  const EvalMetrics metrics{step_, epoch(), figures(result)};
  const std::string set = evaluated_set();
  write([&] { log_->evaluation(metrics); });
  write([&] { task_.write_evaluation(run_dir_); });
  std::ostringstream text;
  text << "epoch " << epoch() << (ema_ ? ", averaged weights" : "") << ": ";
  if (result.loss) text << set << " loss " << std::setprecision(4) << *result.loss << ", ";
  text << result.text << "  (" << human_duration(seconds_since(started_)) << ")";
  progress.line(text.str());
}

void Trainer::write(const std::function<void()>& f) {
  const auto busy = comm_.world->busy();
  try {
    f();
  } catch (const Error& error) {
    if (write_error_.empty()) write_error_ = error.what();
  }
}

void Trainer::save_model(const std::string& which, Progress& progress) {
  const auto busy = comm_.world->busy();
  const auto warn = [&](const std::string& text) {
    progress.finish();
    std::cerr << program_.name << ": " << text << std::endl;
  };
  const double patience_s = weights_dir_ == run_dir_ ? config_.timeout_s : 0;
  const auto save = [&](const std::string& folder) { task_.save(folder, which); };
  const Saved saved = save_with_retries(save, weights_dir_, patience_s, warn);
  weights_dir_ = saved.folder;
  if (write_error_.empty()) write_error_ = saved.error;
}

void Trainer::save(const Evaluation& last, Progress& progress) {
  const RunSummary run_summary = gather_run_summary(comm_, *replica_, step_ - first_step_, all_times_);
  // Threads of one process share their files and repeat the warnings; other processes read other files.
  std::set<std::string> damaged;
  for (const std::vector<std::string>& texts : gather_texts(*comm_.world, task_.corrupt_files(), "damaged"))
    damaged.insert(texts.begin(), texts.end());
  replica_->with_master_weights([&] {
    if (leader()) save_model("weights", progress);
  });
  const std::string exchanged = replica_->optimizer().exchange_summary(*comm_.world);
  if (!leader()) return;
  if (ema_) {
    ema_->swap();
    save_model("ema", progress);
    ema_->swap();
  }
  if (stopped_) write([&] { log_->interrupted(step_, epoch()); });
  if (step_ > first_step_) write([&] { log_->file("summary.json", run_summary.json() + "\n"); });
  progress.finish();
  check(write_error_.empty(), write_error_, "; the weights after step ", step_, " of ", total_steps_, " are in ",
        weights_dir_);
  progress.line(run_summary.table());
  if (replica_checks_ > 0)
    progress.line(detail::concat("replica checks: ", replica_checks_,
                                 " passed; parameters and shared optimizer state of ", comm_.topology.world(),
                                 comm_.topology.world() == 1 ? " worker" : " workers", " were bit-identical"));
  if (replica_->skipped() > 0 && config_.non_finite == "skip")
    progress.line(detail::concat(replica_->skipped(), " of ", step_, " steps were skipped: a gradient was not finite",
                                 spikes_ > 0 ? ", or loss or gradient norm jumped" : ""));
  if (spikes_ > 0)
    progress.line(detail::concat(spikes_, " of ", step_, " steps were skipped: loss or gradient norm jumped"));
  if (!exchanged.empty()) progress.line(exchanged);
  if (graphs_)
    progress.line(detail::concat("CUDA graphs: ", replayed_, " of ", (step_ - first_step_) * config_.accumulation,
                                 " micro-batches were replayed from ", graphs_->captures(), " captured graphs"));
  for (const std::string& line : convolutions_.summary()) progress.line(line);
  constexpr size_t kShown = 5;
  size_t shown = 0;
  for (auto file = damaged.begin(); file != damaged.end() && shown < kShown; ++file, ++shown)
    progress.line("damaged file " + *file);
  if (damaged.size() > kShown)
    progress.line("and " + std::to_string(damaged.size() - kShown) +
                  (damaged.size() == kShown + 1 ? " more damaged file" : " more damaged files"));
  std::ostringstream text;
  text << (stopped_ ? "interrupted after " : "done in ") << human_duration(seconds_since(started_)) << ": ";
  if (stopped_) text << "step " << step_ << " of " << total_steps_;
  else text << (last.text.empty() ? "all steps had been done" : last.text);
  text << ", peak memory of a worker " << peak_memory() << "; weights, metrics and configuration are in " << run_dir_;
  if (stopped_ && saved_step_ == step_) text << "; --resume " << run_dir_ << " continues the run";
  progress.line(text.str());
}

}  // namespace godwit::apps
