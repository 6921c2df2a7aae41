// Checkpoints of a run: the steps at which they are saved, their contents, and the continuation from a checkpoint.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <sstream>

#include "apps/train/continued_run.h"
#include "apps/train/interrupt.h"
#include "apps/train/trainer.h"
#include "comm/gather.h"
#include "comm/host_tensor.h"
#include "engine/clock.h"
#include "engine/excerpt.h"
#include "engine/profile.h"

namespace godwit::apps {
namespace {

const std::string kBestOf = "best_of/";  // best_of/FIGURE = 1 names the figure of best_value

const std::string kDataOf = "data/";     // data/NAME is the hash of the data NAME

// Renames the folder first, so that an interrupted removal leaves a partial checkpoint.
void remove_checkpoint(const std::string& folder) {
  const std::string partial = folder + ".partial";
  std::error_code ignored;
  std::filesystem::remove_all(partial, ignored);  // otherwise, the folder could not be renamed
  std::filesystem::rename(folder, partial, ignored);
  std::filesystem::remove_all(partial, ignored);
}

const std::string kOptionOf = "option/";  // option/NAME is the value of an option of the optimizer
// Options of 1-bit Adam and 1-bit LAMB by which frozen means are corrected: they are divided by 1 − β^T.
constexpr const char* kOfFrozen[] = {"beta2", "coeff_beta"};

double as_number(uint64_t hash) { return static_cast<double>(hash >> 11); }  // exact in 53 bits

}  // namespace

void Trainer::find_resumed() {
  const std::string& wanted = config_.resume;
  if (wanted.empty()) return;
  check(!config_.run_dir.empty() && (wanted == "auto" || config_.run_dir == wanted), "resume is ", wanted,
        ", but run_dir is '", config_.run_dir, "'; give both with --resume DIR, or --resume auto --run-dir DIR");
  const std::string folder = config_.run_dir + "/checkpoints";
  if (leader()) lock_ = RunLock(config_.run_dir);  // another run might remove the checkpoint, or add one
  const std::string newest = leader() ? newest_checkpoint(folder) : "";
  resumed_ = gather_texts(*comm_.world, {newest}, "checkpoint/find").front().front();
  if (leader()) {
    const std::map<int64_t, std::string> complete = checkpoints_in(folder);
    for (const auto& [step, path] : checkpoints_in(folder, /*complete=*/false))
      if (complete.empty() || step > complete.rbegin()->first)
        resume_notices_.push_back(path + " has no manifest.json, so this checkpoint is not complete and is not used; "
                                         "the next checkpoint of the run removes the folder");
  }
  if (resumed_.empty() && wanted == "auto" && leader()) metrics_size_ = 0;  // the run starts anew
  check(!resumed_.empty() || wanted == "auto", folder,
        ": has no checkpoint; a run saves one after its last step, on a signal, and with --checkpoint-every N or Nmin");
}

// The tensors share memory with the model and the averages, so load_checkpoint() restores these.
CheckpointExtras Trainer::extras() const {
  CheckpointExtras extras;
  if (ema_) {
    extras.state = ema_->state();
    const std::vector<Tensor>& averages = ema_->buffer_averages();
    for (size_t i = 0; i < averages.size(); ++i) extras.tensors["ema/buffer/" + std::to_string(i)] = averages[i];
  }
  for (const nn::NamedTensor& buffer : task_.model().buffers()) {
    extras.tensors["buffer/" + buffer.name] = buffer.tensor;
    extras.model[buffer.name] = buffer.tensor;  // --init-weights and PyTorch then read the model's files
  }
  for (const nn::NamedTensor& part : task_.state()) extras.own["task/" + part.name] = part.tensor;
  extras.describe = [this](const std::string& folder) { task_.save_description(folder); };
  if (spike_guard_)
    for (const auto& [name, values] : spike_guard_->state()) extras.optional["spike/" + name] = values;
  extras.numbers = {{"step", static_cast<double>(step_)},
                    {"steps_per_epoch", static_cast<double>(steps_per_epoch_)},
                    {"total_steps", static_cast<double>(total_steps_)},
                    {"evaluated", evaluated_step_ == step_ ? 1.0 : 0.0},
                    {"skipped_in_a_row", static_cast<double>(skipped_in_a_row_)},
                    {"spikes", static_cast<double>(spikes_)},
                    {"replica_checks", static_cast<double>(replica_checks_)},
                    {"best_step", static_cast<double>(best_.step)},
                    {"best_value", best_.value},
                    {"metrics_bytes", log_ ? static_cast<double>(log_->size()) : 0},
                    {"correct", accumulator_.correct},
                    {"answers", accumulator_.answers},
                    {"samples", accumulator_.samples},
                    {"bytes_intra", accumulator_.bytes_intra},
                    {"bytes_inter", accumulator_.bytes_inter},
                    {"steps_since_report", static_cast<double>(accumulator_.steps)},
                    {"seconds_since_report", seconds_since(accumulator_.since)}};
  for (const auto& [name, part] : kTimeParts) extras.numbers[detail::concat("time/", name)] = accumulator_.times.*part;
  extras.numbers[kBestOf + config_.checkpoint.best] = 1;
  if (config_.optimizer.name().starts_with("one_bit_"))
    for (const char* name : kOfFrozen)
      if (config_.optimizer.has(name)) extras.numbers[kOptionOf + name] = config_.optimizer.number(name);
  for (const auto& [name, hash] : task_.data_hashes()) extras.numbers[kDataOf + name] = as_number(hash);
  return extras;
}

void Trainer::resume() {
  CheckpointExtras saved = extras();
  const auto start = std::chrono::steady_clock::now();
  redistributed_ = load_checkpoint(resumed_, *replica_, comm_, saved);
  if (ema_) ema_->continue_after(replica_->steps());
  load_s_ = seconds_since(start);
  unused_ = saved.unused;
  const auto number = [&](const char* name) {
    const auto found = saved.numbers.find(name);
    check(found != saved.numbers.end(), resumed_, ": has no number '", name, "'");
    check(found->second >= 0 && found->second < 0x1p53, resumed_, ": ", name, " is ", found->second);
    return found->second;
  };
  const auto whole = [&](const char* name) { return std::llround(number(name)); };
  check(checkpoint_step(std::filesystem::path(resumed_).filename().string()) == whole("step"), resumed_,
        ": was saved after step ", whole("step"), "; rename this folder to step-", whole("step"), ", or remove it");
  const std::string changes = notice_of_changes(config_);
  check(whole("steps_per_epoch") == steps_per_epoch_, resumed_, ": was saved by a run with ", whole("steps_per_epoch"),
        " steps per epoch, this run has ", steps_per_epoch_, changes.empty() ? "" : "; " + changes,
        redistributed_.empty() ? "; resume with the same data, batch and accumulation"
                               : "; resume with the same data and a number of workers that keeps this number");
  check(whole("step") <= total_steps_, resumed_, ": is at step ", whole("step"), ", beyond the ", total_steps_,
        " steps of this run; raise --epochs or --max-steps");
  step_ = first_step_ = saved_step_ = whole("step");
  if (whole("evaluated") == 1) evaluated_step_ = step_;
  skipped_in_a_row_ = whole("skipped_in_a_row"), replica_checks_ = whole("replica_checks");
  if (leader()) metrics_size_ = whole("metrics_bytes");
  check_saved_options(saved.numbers);
  // Checkpoints of version 1 have neither.
  if (saved.numbers.contains("best_step")) resume_best(whole("best_step"), saved.numbers);
  std::string changed;  // older checkpoints have no hashes
  bool trains_on_other_data = false, evaluates_other_data = false;
  for (const auto& [name, hash] : task_.data_hashes())
    if (const auto found = saved.numbers.find(kDataOf + name);
        found != saved.numbers.end() && found->second != as_number(hash)) {
      check(name != task_.tokens(), resumed_, ": ", name, " has changed since the run was saved, so its weights would ",
            "read wrong tokens; resume with the saved data, or start a new run");
      changed += (changed.empty() ? "" : ", ") + name;
      if (name.starts_with("the training")) trains_on_other_data = true;
      else if (name != "the test text" || config_.checkpoint.best.starts_with("test_")) evaluates_other_data = true;
    }
  if (!changed.empty())
    resume_notices_.push_back("changed since the run was saved: " + changed + "; the run continues with the new data");
  if (evaluates_other_data && best_.step > 0) {
    resume_notices_.push_back(
        detail::concat("the best checkpoint of the saved run, of step ", best_.step,
                       ", is no longer kept as the best, because it was evaluated on other data"));
    best_ = saved_best_ = {};
  }
  if (spike_guard_ && (!redistributed_.empty() || trains_on_other_data)) {
    spike_guard_->forget();
    guard_is_new_ = true;
    resume_notices_.push_back(
        "the spike guard begins anew, because gradient norms depend on the workers and on the training data");
  }
  if (saved.numbers.contains("spikes")) spikes_ = whole("spikes");
  accumulator_.since = Clock::now();
  if (!redistributed_.empty()) return;  // the next report covers the steps since the resume
  accumulator_.correct = number("correct"), accumulator_.answers = number("answers");
  accumulator_.samples = number("samples"), accumulator_.steps = whole("steps_since_report");
  accumulator_.bytes_intra = number("bytes_intra"), accumulator_.bytes_inter = number("bytes_inter");
  for (const auto& [name, part] : kTimeParts)  // checkpoints of version 1 have none
    if (const std::string key = detail::concat("time/", name); saved.numbers.contains(key))
      accumulator_.times.*part = number(key.c_str());
  accumulator_.since -=
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(number("seconds_since_report")));
}

// Older checkpoints do not have the options.
void Trainer::check_saved_options(const std::map<std::string, double>& numbers) const {
  for (const auto& [key, value] : numbers) {
    if (!key.starts_with(kOptionOf)) continue;
    const std::string name = key.substr(kOptionOf.size());
    if (!config_.optimizer.has(name)) continue;
    check(config_.optimizer.number(name) == value, resumed_, ": optimizer.", name, " is ", config_.optimizer.text(name),
          " (was ", value, "), but frozen means of the saved run are corrected with the former value; resume with it");
  }
}

// Older checkpoints do not name the figure of the best evaluation.
void Trainer::resume_best(int64_t step, const std::map<std::string, double>& numbers) {
  std::string figure = config_.checkpoint.best;
  for (const auto& [name, one] : numbers)
    if (name.starts_with(kBestOf)) figure = name.substr(kBestOf.size());
  if (figure == config_.checkpoint.best) best_ = saved_best_ = {step, numbers.at("best_value")};
  else if (step > 0)
    resume_notices_.push_back(detail::concat("checkpoint.best is '", excerpt(config_.checkpoint.best), "' (was '",
                                             excerpt(figure), "'), so the best checkpoint of the saved run, of step ",
                                             step, ", is no longer kept as the best"));
}

// At the end of an epoch the checkpoint follows the evaluation.
void Trainer::checkpoint_if_due(Progress& progress) {
  if (saved_step_ == step_) checkpoint_due_ = false;  // the run resumed from this checkpoint
  if (checkpoint_due_ && replica_->synchronized() && (!ends_epoch() || evaluated_step_ == step_)) checkpoint(progress);
}

bool Trainer::wants_checkpoint() {
  const double seconds = config_.checkpoint.seconds();
  const bool late = leader() && seconds > 0 && seconds_since(saved_at_) >= seconds;
  return take_checkpoint_signal() || late;
}

void Trainer::check_best() const {
  const std::string& wanted = config_.checkpoint.best;
  const std::vector<std::string> names = figure_names();
  check(wanted.empty() || std::ranges::find(names, wanted) != names.end(), "checkpoint.best: the evaluations have no ",
        "figure '", excerpt(wanted), "'; use one of ", excerpts(names, names.size()));
}

void Trainer::note_best(const Evaluation& result) {
  const std::string& wanted = config_.checkpoint.best;
  if (wanted.empty()) return;
  std::optional<double> value;  // some figures exist only on rank 0
  for (const auto& [name, of_name] : figures(result))
    if (name == wanted) value = of_name;
  const bool low = lower_is_better(wanted);
  const bool is_better = value && (best_.step == 0 || (low ? *value < best_.value : *value > best_.value));
  const Tensor better = cpu_tensor<double>({is_better ? 1.0 : 0.0});
  comm_.world->broadcast(better, 0, "checkpoint/best");
  if (better.item(0) != 0) {
    best_ = {step_, value.value_or(0)};
    if (saved_step_ == step_) (announced_ ? saved_best_ : pending_best_) = best_;
    checkpoint_due_ = true;
  }
}

void Trainer::checkpoint(Progress& progress) {
  finish_checks();
  finish_checkpoint(progress);
  const ProfileRange range("checkpoint", step_, ProfileRange::Of::run);
  const auto begin = saved_at_ = Clock::now();
  checkpoint_due_ = false;
  if (leader()) {
    write([&] { log_->sync(); });
    remove_partial_checkpoints();
  }
  if (reserve_.joinable()) reserve_.join();  // the copies use the reserved memory
  CheckpointExtras saved = extras();
  if (evaluated_step_ != step_) {  // an evaluation has averaged the statistics, and a second mean may round
    std::vector<Tensor> own;
    for (const Tensor& buffer : buffers_) own.push_back(buffer.clone());
    task_.average_buffers();
    for (auto& [name, values] : saved.model) values = values.clone();
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_from(own[i]);
  }
  try {
    pending_ = begin_checkpoint(run_dir_ + "/checkpoints/step-" + std::to_string(step_), *replica_, comm_, saved);
  } catch (const CheckpointFailed& error) {  // on all ranks
    return no_checkpoint(step_, error.what(), progress);
  }
  saved_step_ = pending_step_ = step_;
  if (best_.step == step_) pending_best_ = best_;
  pending_wait_s_ = seconds_since(begin);
  announced_ = false;
}

void Trainer::finish_checkpoint(Progress& progress) {
  if (!pending_) return;
  const ProfileRange range("finish checkpoint", pending_step_, ProfileRange::Of::run);
  const auto begin = Clock::now();
  try {
    pending_->finish(*comm_.world);
    pending_wait_s_ += seconds_since(begin);
    announce_checkpoint(progress);
  } catch (const CheckpointFailed& error) {  // on all ranks
    no_checkpoint(pending_step_, error.what(), progress);
    saved_step_ = 0;
  }
  pending_.reset();
}

void Trainer::no_checkpoint(int64_t step, const std::string& reason, Progress& progress) {
  if (!leader()) return;
  if (step == best_.step) best_ = saved_best_;
  remove_partial_checkpoints();
  progress.line(
      detail::concat("notice: no checkpoint of step ", step, ": ", reason, "; the earlier checkpoints are kept"));
}

void Trainer::announce_checkpoint(Progress& progress) {
  if (!leader() || announced_ || !pending_ || !pending_->complete()) return;
  announced_ = true;
  const auto busy = comm_.world->control()->busy();
  const std::string folder = run_dir_ + "/checkpoints";
  std::map<int64_t, std::string> all;
  try {
    all = checkpoints_in(folder);
  } catch (const Error& error) {
    progress.line(detail::concat("notice: old checkpoints are not removed: ", error.what()));
  }
  // The checkpoint of the best step may have been complete before the evaluation, also in an interrupted run.
  // pending_best_ may no longer be the best, but becomes the best again if the next checkpoint fails.
  for (const Best& best : {pending_best_, best_})
    if (all.contains(best.step)) saved_best_ = best;
  int64_t old = std::ssize(all) - config_.checkpoint.keep;
  for (auto checkpoint = all.begin(); old > 0; ++checkpoint, --old)
    if (checkpoint->first != saved_best_.step) remove_checkpoint(checkpoint->second);
  std::ostringstream text;
  text << "checkpoint of step " << pending_step_ << " in " << folder << ": "
       << human_bytes(static_cast<double>(pending_->bytes())) << " in " << human_duration(pending_->seconds())
       << "; training waited " << std::setprecision(2) << pending_wait_s_ << " s";
  if (pending_step_ == best_.step) text << "; the best " << config_.checkpoint.best << " so far";
  progress.line(text.str());
}

// Restores parameters, optimizer state and averages from the checkpoint. Step count, schedule and data advance, so no
// batch is repeated. The hidden state of an LSTM follows the data and is not restored.
void Trainer::roll_back(Progress& progress) {
  finish_checks();
  finish_checkpoint(progress);
  std::string newest, problem;
  try {
    if (leader()) newest = newest_checkpoint(run_dir_ + "/checkpoints");
  } catch (const CheckpointFailed& error) {  // a network file system may fail for a while
    problem = detail::concat(": ", error.what());
  }
  const std::string folder = gather_texts(*comm_.world, {newest}, "checkpoint/find").front().front();
  if (folder.empty()) {
    if (leader()) progress.line("notice: there is no checkpoint to roll back to" + problem);
    return;
  }
  CheckpointExtras state = extras();
  state.own.clear();
  // The guard of an earlier process had other workers or data.
  if (guard_is_new_ && checkpoint_step(std::filesystem::path(folder).filename().string()).value_or(0) <= first_step_)
    state.optional.clear();
  const int64_t skipped = replica_->skipped();
  load_checkpoint(folder, *replica_, comm_, state);
  replica_->set_skipped(skipped);
  if (ema_) ema_->continue_after(replica_->steps());
  if (leader()) progress.line("parameters and optimizer state are restored from " + folder);
}

// Removes checkpoints whose saving or removal was interrupted. Other files and folders remain.
void Trainer::remove_partial_checkpoints() const {
  const auto busy = comm_.world->control()->busy();
  std::error_code error;
  std::vector<std::filesystem::path> partial;
  for (std::filesystem::directory_iterator at(run_dir_ + "/checkpoints", error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error))
    if (const std::filesystem::path& path = at->path(); checkpoint_step(path.stem().string())) {
      std::error_code unreadable;  // a network file system may fail for a while
      const bool complete = std::filesystem::exists(path / "manifest.json", unreadable) || unreadable;
      if (path.extension() == ".partial" || (path.extension().empty() && !complete)) partial.push_back(path);
    }
  for (const std::filesystem::path& path : partial) std::filesystem::remove_all(path, error);
}

}  // namespace godwit::apps
