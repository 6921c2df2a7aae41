// Checkpoints of a run: when they are saved, what they contain, and how a run continues from one.
#include <cmath>
#include <filesystem>

#include "apps/train/trainer.h"
#include "comm/gather.h"
#include "engine/clock.h"

namespace godwit::apps {

void Trainer::find_resumed() {
  const std::string& wanted = config_.resume;
  if (wanted.empty()) return;
  check(!config_.run_dir.empty() && (wanted == "auto" || config_.run_dir == wanted), "resume is ", wanted,
        ", but run_dir is '", config_.run_dir, "'; give both with --resume DIR, or --resume auto --run-dir DIR");
  const std::string folder = config_.run_dir + "/checkpoints";
  const std::string newest = leader() ? newest_checkpoint(folder) : "";
  resumed_ = gather_texts(*comm_.world, {newest}, "checkpoint/find").front().front();
  if (resumed_.empty() && wanted == "auto" && leader()) metrics_size_ = 0;  // the run starts anew
  check(!resumed_.empty() || wanted == "auto", folder, ": has no checkpoint; train with --checkpoint-every STEPS");
}

// The tensors share memory with the model and the averages, so load_checkpoint() restores these.
CheckpointExtras Trainer::extras() const {
  CheckpointExtras extras;
  if (ema_) {
    extras.state = ema_->state();
    const std::vector<Tensor>& averages = ema_->buffer_averages();
    for (size_t i = 0; i < averages.size(); ++i) extras.tensors["ema/buffer/" + std::to_string(i)] = averages[i];
  }
  for (const nn::NamedTensor& buffer : task_.model().buffers()) extras.tensors["buffer/" + buffer.name] = buffer.tensor;
  for (const nn::NamedTensor& part : task_.state()) extras.tensors["task/" + part.name] = part.tensor;
  extras.numbers = {{"step", static_cast<double>(step_)},
                    {"steps_per_epoch", static_cast<double>(steps_per_epoch_)},
                    {"total_steps", static_cast<double>(total_steps_)},
                    {"evaluated", evaluated_step_ == step_ ? 1.0 : 0.0},
                    {"skipped_in_a_row", static_cast<double>(skipped_in_a_row_)},
                    {"replica_checks", static_cast<double>(replica_checks_)},
                    {"metrics_bytes", log_ ? static_cast<double>(log_->size()) : 0},
                    {"correct", accumulator_.correct},
                    {"answers", accumulator_.answers},
                    {"samples", accumulator_.samples},
                    {"bytes_intra", accumulator_.bytes_intra},
                    {"bytes_inter", accumulator_.bytes_inter},
                    {"steps_since_report", static_cast<double>(accumulator_.steps)},
                    {"seconds_since_report", seconds_since(accumulator_.since)}};
  return extras;
}

void Trainer::resume() {
  CheckpointExtras saved = extras();
  load_checkpoint(resumed_, *replica_, comm_, saved);
  const auto number = [&](const char* name) {
    const auto found = saved.numbers.find(name);
    check(found != saved.numbers.end(), resumed_, ": has no number '", name, "'");
    check(found->second >= 0 && found->second < 0x1p53, resumed_, ": ", name, " is ", found->second);
    return found->second;
  };
  const auto whole = [&](const char* name) { return std::llround(number(name)); };
  check(whole("steps_per_epoch") == steps_per_epoch_, resumed_, ": is of a run with ", whole("steps_per_epoch"),
        " steps per epoch, this run has ", steps_per_epoch_, "; resume with the same data, batch and accumulation");
  check(whole("step") <= total_steps_, resumed_, ": is at step ", whole("step"), ", beyond the ", total_steps_,
        " steps of this run; raise --epochs or --max-steps");
  step_ = first_step_ = saved_step_ = whole("step");
  if (whole("evaluated") == 1) evaluated_step_ = step_;
  skipped_in_a_row_ = whole("skipped_in_a_row"), replica_checks_ = whole("replica_checks");
  accumulator_.correct = number("correct"), accumulator_.answers = number("answers");
  accumulator_.samples = number("samples"), accumulator_.steps = whole("steps_since_report");
  accumulator_.bytes_intra = number("bytes_intra"), accumulator_.bytes_inter = number("bytes_inter");
  accumulator_.since -=
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(number("seconds_since_report")));
  if (leader()) metrics_size_ = whole("metrics_bytes");
}

// At the end of an epoch the checkpoint follows the evaluation.
void Trainer::checkpoint_if_due(Progress& progress, bool evaluated) {
  if (config_.checkpoint.every == 0) return;
  const bool due = step_ % config_.checkpoint.every == 0 || step_ == total_steps_;
  if (!evaluated) checkpoint_due_ = checkpoint_due_ || due;
  if (saved_step_ == step_) checkpoint_due_ = false;  // resumed there
  if (checkpoint_due_ && (evaluated || !ends_epoch()) && replica_->synchronized()) checkpoint(progress);
}

void Trainer::checkpoint(Progress& progress) {
  const std::string folder = run_dir_ + "/checkpoints", own = folder + "/step-" + std::to_string(step_);
  checkpoint_due_ = false;
  if (leader()) {
    write([&] { log_->sync(); });
    remove_partial_checkpoints();
  }
  try {
    save_checkpoint(own, *replica_, comm_, extras());
  } catch (const CheckpointFailed& error) {  // on all ranks
    if (leader()) remove_partial_checkpoints();
    if (leader())
      progress.line(detail::concat("notice: no checkpoint of step ", step_, ": ", error.what(),
                                   "; the run goes on and keeps the checkpoints that it has"));
    return;
  }
  saved_step_ = step_;
  if (!leader()) return;
  std::map<int64_t, std::string> all = checkpoints_in(folder);
  std::error_code ignored;
  for (; std::ssize(all) > config_.checkpoint.keep; all.erase(all.begin()))
    std::filesystem::remove_all(all.begin()->second, ignored);
  progress.line(detail::concat("checkpoint of step ", step_, " in ", folder));
}

// Those whose saving or removal was interrupted.
void Trainer::remove_partial_checkpoints() const {
  std::error_code error;
  std::vector<std::filesystem::path> partial;
  for (std::filesystem::directory_iterator at(run_dir_ + "/checkpoints", error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error))
    if (const std::filesystem::path& path = at->path();
        path.filename().string().starts_with("step-") &&
        (path.extension() == ".partial" || !std::filesystem::exists(path / "manifest.json", error)))
      partial.push_back(path);
  for (const std::filesystem::path& path : partial) std::filesystem::remove_all(path, error);
}

}  // namespace godwit::apps
