// The output of a run: metrics, evaluations, the closing lines and weights.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <set>
#include <sstream>

#include "apps/train/save_weights.h"
#include "apps/train/trainer.h"
#include "comm/gather.h"
#include "comm/host_tensor.h"
#include "engine/clock.h"
#include "engine/context.h"
#include "engine/excerpt.h"
#include "engine/gpu.h"
#include "engine/profile.h"

namespace godwit::apps {
namespace {

// "1.2 GB", or with a GPU "1.2 GB, of its GPU 3.4 GB".
std::string peak_memory() {
  std::string text = human_bytes(static_cast<double>(context().pool->stats().peak_bytes_in_use));
  if (context().device.is_cuda()) text += ", of its GPU " + human_bytes(static_cast<double>(peak_gpu_bytes()));
  return text;
}

}  // namespace

// The loss is the mean of the current step over the ranks. Accuracy, bytes, rate and times cover the steps since the
// last report.
void Trainer::report(Progress& progress) {
  finish_checks();
  const ProfileRange range("metrics");
  const auto now = Clock::now();
  accumulator_.times.total = std::chrono::duration<double>(now - accumulator_.since).count();
  std::vector<double> own = {last_loss_,           accumulator_.correct,     accumulator_.answers,
                             accumulator_.samples, accumulator_.bytes_intra, accumulator_.bytes_inter};
  const int64_t first_time = std::ssize(own);
  for (const auto& [name, part] : kTimeParts) own.push_back(accumulator_.times.*part);
  const Tensor sums = cpu_tensor(own);
  comm_.world->all_reduce(sums, Reduce::sum, "metrics/all_reduce");
  if (leader()) {
    const double steps = static_cast<double>(accumulator_.steps);
    const int world = comm_.world->size();
    TimeSplit times;
    for (size_t i = 0; i < kTimeParts.size(); ++i)
      times.*kTimeParts[i].second = sums.item(first_time + static_cast<int64_t>(i)) / steps / world;
    StepMetrics metrics{.step = step_,
                        .epoch = epoch(),
                        .loss = sums.item(0) / world,
                        .lr = schedule_.lr(step_),
                        .samples_per_s = sums.item(3) / (times.total * steps),
                        .bytes_intra = sums.item(4) / steps,
                        .bytes_inter = sums.item(5) / steps,
                        .times = times};
    if (sums.item(2) > 0) metrics.accuracy = sums.item(1) / sums.item(2);
    if (config_.clip.norm > 0 && skipped_in_a_row_ == 0) metrics.grad_norm = replica_->gradient_norm();
    if (config_.non_finite == "skip") metrics.skipped = replica_->skipped();
    write([&] { log_->step(metrics); });
    show(metrics, progress);
  }
  accumulator_ = StepAccumulator();
  accumulator_.since = now;
}

void Trainer::show(const StepMetrics& metrics, Progress& progress) {
  const double training_s = seconds_since(started_) - evaluating_s_;
  ProgressState state;
  state.step = step_;
  state.steps = total_steps_;
  state.epoch = epoch();
  state.epochs = (total_steps_ - 1) / steps_per_epoch_ + 1;
  state.loss = metrics.loss;
  state.accuracy = metrics.accuracy;
  state.samples_per_s = metrics.samples_per_s;
  state.bytes_intra = metrics.bytes_intra;
  state.bytes_inter = metrics.bytes_inter;
  state.seconds_left =
      training_s / static_cast<double>(step_ - first_step_) * static_cast<double>(total_steps_ - step_);
  state.unit = task_.unit();
  state.times = metrics.times;
  write([&] { progress.update(state); });
}

std::string Trainer::name_in_metrics(const std::string& figure) const {
  return figure.starts_with("test_") ? evaluated_set() + figure.substr(4) : figure;
}

std::vector<std::string> Trainer::figure_names() const {
  std::vector<std::string> names = task_.figures();
  for (std::string& name : names) name = name_in_metrics(name);
  return names;
}

std::vector<std::pair<std::string, double>> Trainer::figures(const Evaluation& result) const {
  std::vector<std::pair<std::string, double>> all;
  if (result.loss) all.emplace_back(name_in_metrics("test_loss"), *result.loss);
  for (const auto& [name, value] : result.metrics) all.emplace_back(name_in_metrics(name), value);
  const std::vector<std::string> names = figure_names();
  check(all.empty() || std::ranges::equal(all, names, {}, &std::pair<std::string, double>::first), "evaluate() of ",
        task_.name(), " returns other figures than ", excerpts(names, names.size()), "; change figures()");
  return all;
}

void Trainer::report(const Evaluation& result, Progress& progress) {
  const EvalMetrics metrics{step_, epoch(), figures(result)};
  const std::string set = evaluated_set();
  write([&] { log_->evaluation(metrics); });
  write([&] { task_.write_evaluation(run_dir_, step_); });
  std::ostringstream text;
  text << "epoch " << epoch() << (ema_ ? ", averaged weights" : "") << ": ";
  if (result.loss) text << set << " loss " << std::setprecision(4) << *result.loss << ", ";
  text << result.text << "  (" << human_duration(seconds_since(started_)) << ")";
  progress.line(text.str());
  if (!result.below.empty()) progress.line(result.below);
}

void Trainer::write(const std::function<void()>& f) {
  const auto busy = comm_.world->control()->busy();
  try {
    f();
  } catch (const std::exception& error) {
    if (write_error_.empty()) write_error_ = error.what();
  }
}

void Trainer::save_model(const std::string& which, Progress& progress) {
  const auto busy = comm_.world->control()->busy();
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

void Trainer::write_trace() {
  if (!trace_->enabled()) return;
  const std::string text = trace_->gather(comm_, step_);
  if (leader()) write([&] { log_->file("trace.json", text); });
}

void Trainer::save(const Evaluation& last, Progress& progress) {
  if (step_ > first_step_) write_trace();
  const RunSummary run_summary = gather_run_summary(comm_, *replica_, step_ - first_step_, all_times_);
  // Ranks of one process share files and repeat warnings; other processes have other warnings.
  std::set<std::string> damaged;
  for (const std::vector<std::string>& texts : gather_texts(*comm_.world, task_.corrupt_files(), "corrupt"))
    damaged.insert(texts.begin(), texts.end());
  replica_->read_master_weights([&] {
    if (leader()) save_model("weights", progress);
  });
  if (ema_) {
    ema_->swap();
    replica_->read_parameters(
        [&] {
          if (leader()) save_model("ema", progress);
        },
        /*rounded=*/false);
    ema_->swap();
  } else if (leader() && metrics_size_) {  // averages of the run that --resume named
    std::error_code ignored;
    for (const char* old : {"/ema", "/ema.safetensors"}) std::filesystem::remove_all(run_dir_ + old, ignored);
  }
  const std::string exchanged = replica_->optimizer().exchange_summary(*comm_.world);
  if (!leader()) return;
  if (stopped_) write([&] { log_->interrupted(step_, epoch()); });
  if (step_ > first_step_) write([&] { log_->file("summary.json", run_summary.json() + "\n"); });
  progress.finish();
  check(write_error_.empty(), write_error_, "; the weights after step ", step_, " of ", total_steps_, " are in ",
        weights_dir_);
  progress.line(run_summary.table());
  show_closing(exchanged, damaged, progress);
  std::ostringstream text;
  text << (stopped_ ? "interrupted after " : "done in ") << human_duration(seconds_since(started_)) << ": ";
  if (stopped_) text << "step " << step_ << " of " << total_steps_;
  else text << (last.text.empty() ? "all steps had been done" : last.text);
  text << ", peak memory of a worker " << peak_memory() << "; weights";
  std::error_code none;
  if (std::filesystem::exists(run_dir_ + "/metrics.jsonl", none))
    text << ", metrics and configuration are in " << run_dir_;
  else
    text << " are in " << run_dir_ << "; metrics and configuration were deleted during the run";
  if (stopped_ && saved_step_ == step_) text << "; --resume " << run_dir_ << " continues the run";
  progress.line(text.str());
}

void Trainer::show_closing(const std::string& exchanged, const std::set<std::string>& damaged, Progress& progress) {
  if (replica_checks_ > 0)
    progress.line(detail::concat("replica checks: ", replica_checks_,
                                 " passed; parameters and shared optimizer state of ", comm_.topology.world(),
                                 comm_.topology.world() == 1 ? " worker" : " workers", " were bit-identical"));
  if (const int64_t skipped = replica_->skipped() - spikes_; skipped > 0)
    progress.line(detail::concat(skipped, " of ", step_, " steps were skipped: a gradient was not finite"));
  if (spikes_ > 0)
    progress.line(detail::concat(spikes_, " of ", step_, " steps were skipped: loss or gradient norm jumped"));
  if (!exchanged.empty()) progress.line(exchanged);
  if (graphs_)
    progress.line(detail::concat("CUDA graphs: ", replayed_, " of ", (step_ - first_step_) * config_.accumulation,
                                 " micro-batches were replayed from ", graphs_->captures(), " captured graphs"));
  if (trace_->enabled() && step_ > first_step_)
    progress.line(detail::concat(trace_->contents(step_), " in ", run_dir_,
                                 "/trace.json; open it with https://ui.perfetto.dev or chrome://tracing"));
  for (const std::string& line : convolutions_.summary()) progress.line(line);
  constexpr size_t kShown = 5;
  size_t shown = 0;
  for (auto file = damaged.begin(); file != damaged.end() && shown < kShown; ++file, ++shown)
    progress.line("corrupt file " + *file);
  if (damaged.size() > kShown)
    progress.line("and " + std::to_string(damaged.size() - kShown) +
                  (damaged.size() == kShown + 1 ? " more corrupt file" : " more corrupt files"));
}

}  // namespace godwit::apps
