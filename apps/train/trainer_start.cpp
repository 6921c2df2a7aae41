// The start of a run: its directory, the table of options, and notices.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "apps/train/interrupt.h"
#include "apps/train/trainer.h"
#include "comm/transport/group_nccl.h"
#include "engine/clock.h"
#include "engine/context.h"
#include "engine/excerpt.h"
#include "engine/gpu.h"
#include "engine/kernel_library.h"
#include "engine/process_limits.h"

namespace godwit::apps {
namespace {

std::string kernels() { return context().device.is_cuda() ? gpu_name() : kernel_library(); }

}  // namespace

void Trainer::open_run(Progress& progress) {
  started_ = saved_at_ = Clock::now();
  find_resumed();
  if (!resumed_.empty()) resume();
  trace_ = std::make_unique<RunTrace>(context().trace, first_step_, total_steps_, config_.trace_steps);
  if (!leader()) {
    if (uses_mpi(config_)) catch_interrupts("", "");  // an MPI rank is a separate process
    return;
  }
  const auto busy = comm_.world->control()->busy();
  const std::string name = task_.name() + "-" + config_.optimizer.name();
  run_dir_ = weights_dir_ = create_run_dir(config_.run_dir, name, metrics_size_.has_value());
  check(metrics_size_ || checkpoints_in(run_dir_ + "/checkpoints").empty(), "run directory ", run_dir_,
        ": has checkpoints of another run; choose another --run-dir, or continue it with --resume ", run_dir_);
  std::optional<ResumedAt> resumed;
  if (metrics_size_) resumed = {first_step_, *metrics_size_, first_step_ == total_steps_};
  lock_ = RunLock();  // RunLog locks the directory itself
  log_ = std::make_unique<RunLog>(run_dir_, to_json(config_, false), config_.tensorboard, resumed);
  task_.on_run_start(run_dir_);
  // A launcher forwards Ctrl-C as SIGTERM. If a rank has died, the launcher also sends SIGTERM, soon followed by
  // SIGKILL.
  const std::string more = uses_mpi(config_)
                               ? "if another rank has died, the launcher ends this rank before it can save"
                               : "a second signal, at least 1 s later, ends the run at once";
  catch_interrupts("stopping after the current step or batch of an evaluation to save the weights; " + more,
                   "ended without saving; the run directory is " + run_dir_);
  progress.line(summary(config_, rows()));
  if (!resumed_.empty())
    progress.line(
        detail::concat("continues after step ", first_step_, ": ", resumed_, ", loaded in ", human_duration(load_s_)));
  if (!log_->notice().empty()) progress.line("notice: " + log_->notice());
  for (const std::string& notice : warnings()) progress.line("notice: " + notice);
}

// Notices about unexpected consequences of the options or the machine.
std::vector<std::string> Trainer::warnings() const {
  std::vector<std::string> all = config_.notices;
  if (!redistributed_.empty()) all.push_back(redistributed_);
  if (!unused_.empty())
    all.push_back("the checkpoint has state that this run does not use: " + excerpts(unused_, unused_.size()));
  all.insert(all.end(), resume_notices_.begin(), resume_notices_.end());
  const ExchangeConfig& exchange = config_.exchange;
  if (config_.dtype == "bf16" && context().device == kCpu && !fast_bf16())
    all.push_back(
        "this processor computes bfloat16 products no faster than float32 products, so they are computed in float32: "
        "--dtype bf16 saves memory, but no time");
  if (threads_are_bound())
    all.push_back(
        "OpenMP binds threads to cores (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY), so workers may run on the same "
        "cores; unset these variables");
  if (config_.device == "cuda" && !config_.share_gpu && config_.nccl && !nccl_built() && comm_.topology.world() > 1 &&
      uses_mpi(config_))
    all.push_back(
        "this build has no NCCL: processes exchange through host memory; install libnccl-dev and configure again");
  int64_t kept = 0;
  for (const StateTensor& part : replica_->optimizer().exchange_state()) kept += part.values.bytes();
  if (exchange.sharding != Sharding::none && exchange.sharding != Sharding::hybrid && kept > 0)
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
  const ScheduleConfig& schedule = config_.schedule;
  if (const auto run = static_cast<double>(total_steps_) / static_cast<double>(steps_per_epoch_);
      schedule.name == "multi_step" && schedule.milestones.front() >= run)
    all.push_back(detail::concat("schedule.milestones: the first is after ", schedule.milestones.front(),
                                 " epochs, but this run ends after ", run, ", so the learning rate does not fall"));
  const auto add = [&](const std::vector<std::string>& lines) { all.insert(all.end(), lines.begin(), lines.end()); };
  const OptimizerMethod& method = config_.optimizer.method();
  if (method.notices) add(method.notices(for_run(config_.optimizer, schedule_, total_steps_).options(), total_steps_));
  if (!method.communicates_itself && exchange.method().notices) add(exchange.method().notices(exchange.options()));
  return all;
}

// Remedies for a non-finite loss.
std::string Trainer::nan_hint() const {
  const std::string& hint = config_.optimizer.method().divergence_hint;
  return "; lower --lr or use a warm-up (--set schedule.warmup_fraction=0.1)" + (hint.empty() ? "" : "; " + hint);
}

Rows Trainer::rows() const {
  int64_t state_bytes = 0;
  for (const auto& parts : {replica_->optimizer().state(), replica_->master_state()})
    for (const StateTensor& state : parts) state_bytes += state.values.bytes();
  std::ostringstream model, run;
  const Buckets& buckets = replica_->buckets();
  model << buckets.numel() << " in " << buckets.size() << (buckets.size() == 1 ? " bucket" : " buckets")
        << "; optimizer state of this worker: " << human_bytes(static_cast<double>(state_bytes));
  run << total_steps_ << " of " << task_.batch_samples() * config_.accumulation * comm_.topology.world() << " "
      << task_.unit() << ", " << steps_per_epoch_ << " per epoch";
  Rows rows = task_.notes();
  rows.insert(rows.end(), {{"parameters", model.str()},
                           {"steps", run.str()},
                           {"kernels", kernels() + ", threads per worker: " + std::to_string(context().threads)},
                           {"run directory", run_dir_}});
  return rows;
}

}  // namespace godwit::apps
