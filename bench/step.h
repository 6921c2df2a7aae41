// StepTimer: times whole training steps of one rank, and their phases.
#pragma once
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure.h"
#include "bench/settings.h"
#include "comm/buckets/scheduler.h"
#include "comm/exchange/method.h"
#include "engine/gpu.h"
#include "engine/graph.h"
#include "engine/kernel_library.h"
#include "engine/rounded_copy.h"
#include "nn/module.h"
#include "optim/method.h"

namespace godwit::bench {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// CPU time of all threads. With threads=1, it is comparable even on a busy machine. With more threads, it includes
// spinning of waiting threads.
inline double cpu_now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

inline double resident_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024e-6;
}

// Peak tensor memory on the context's device.
inline double tensor_mb() {
  const bool there = context().device.is_cuda();
  return static_cast<double>(there ? peak_gpu_bytes() : context().pool->stats().peak_bytes_in_use) * 1e-6;
}

// Runs and times steps with the configured optimizer.
class StepTimer {
 public:
  StepTimer(const Settings& settings, Communicator& comm, const nn::Module& model, double lr,
            std::function<Var(int step)> loss_of)
      : buckets_(model.parameters(), {}), comm_(comm), info_{0, lr}, loss_of_(std::move(loss_of)) {
    if (settings.graph()) graphs_ = std::make_unique<CudaGraphCache>();
    OptimizerConfig config = settings.text("optimizer");
    config.set("weight_decay", 1e-4);
    optimizer_ = make_optimizer(config, {.buckets = buckets_, .comm = comm, .exchange = exchange_for(config)});
    if (context().device.is_cuda())
      for (const Bucket& bucket : buckets_) rounded_.push_back(RoundedCopy::of(bucket.param, bucket.numel));
    scheduler_ = std::make_unique<Scheduler>(buckets_, [this](Bucket& bucket) {
      optimizer_->exchange(bucket, comm_, info_);
      const auto update = [&] { optimizer_->apply(bucket, info_); };
      if (rounded_.empty()) update();
      else rounded_[static_cast<size_t>(bucket.index)]->update(update);
    });
  }

  Var step() {
    begin();
    const auto pass = [this] {
      loss_ = forward();
      backward(loss_);
    };
    if (graphs_) graphs_->run({}, pass);
    else pass();
    scheduler_->finish_step();
    return loss_;
  }

  // Times windows of five steps, because on a GPU the host runs ahead and waits once per window.
  void time(int samples) {
    constexpr int kSteps = 5;
    for (int i = 0; i < samples; ++i) {
      const double start = now(), cpu_start = cpu_now();
      Var loss;
      for (int k = 0; k < kSteps; ++k) loss = step();
      losses.push_back(loss.value().item());
      step_s.push_back((now() - start) / kSteps);
      cpu_s.push_back((cpu_now() - cpu_start) / kSteps);
    }
  }

  // Times steps with a synchronization after each phase. This is slower on a GPU.
  void time_phases(int samples) {
    for (int i = 0; i < samples; ++i) {
      synchronize();
      const double start = now(), cpu_start = cpu_now();
      begin();
      const Var loss = forward();
      synchronize();
      const double there = now();
      backward(loss);
      synchronize();
      const double back = now();
      scheduler_->finish_step();
      losses.push_back(loss.value().item());
      forward_s.push_back(there - start);
      backward_s.push_back(back - there);
      rest_s.push_back(now() - back);
      waited_s.push_back(now() - start);
      if (context().device.is_cuda()) continue;
      step_s.push_back(waited_s.back());
      cpu_s.push_back(cpu_now() - cpu_start);
    }
  }

  std::vector<double> losses, step_s, cpu_s, forward_s, backward_s, rest_s, waited_s;

 private:
  std::unique_ptr<Exchange> exchange_for(const OptimizerConfig& config) const {
    return config.method().communicates_itself ? nullptr : make_exchange("dense", buckets_, comm_, 1);
  }
  void begin() {
    ++info_.step;
    scheduler_->begin_step();
  }
  Var forward() { return loss_of_(static_cast<int>(info_.step) - 1); }

  Buckets buckets_;
  Communicator& comm_;
  StepInfo info_;
  std::function<Var(int step)> loss_of_;
  Var loss_;
  std::unique_ptr<CudaGraphCache> graphs_;
  std::vector<std::shared_ptr<RoundedCopy>> rounded_;  // by bucket; empty on the CPU
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Scheduler> scheduler_;
};

// Throws unless the first losses equal the float32 losses of a reference up to rounding.
inline void check_losses(const std::vector<double>& losses, const std::vector<double>& expected, DType dtype) {
  const double tolerance = dtype == DType::bf16 ? 2e-3 : 2e-5;
  for (size_t i = 0; i < std::min(losses.size(), expected.size()); ++i)
    check(std::abs(losses[i] - expected[i]) <= tolerance * expected[i], "the loss of step ", i, " is ", losses[i],
          "; expected ", expected[i]);
}

// Runs two warm-up steps, times steps with the configured optimizer, and prints medians. `what` describes the run;
// `unit` is the name of a sample. Throws if the loss does not decrease, or if the losses of the warm-up differ from
// `expected`.
inline void time_steps(const Settings& settings, Communicator& comm, const nn::Module& model, double lr,
                       const std::string& what, const char* unit, std::function<Var(int step)> loss_of,
                       const std::vector<double>& expected = {}) {
  StepTimer timer(settings, comm, model, lr, std::move(loss_of));
  for (int i = 0; i < 2; ++i) timer.losses.push_back(timer.step().value().item());
  check_losses(timer.losses, expected, settings.dtype());
  const int samples = settings.number("steps");
  const bool on_gpu = context().device.is_cuda();
  if (on_gpu) timer.time(samples);
  if (!settings.graph()) timer.time_phases(on_gpu ? std::min(samples, 3) : samples);
  const double first = timer.losses.front(), last = timer.losses.back(), step = median(timer.step_s);
  check(std::isfinite(last) && last < first, "the loss went from ", first, " to ", last, "; expected a decrease");
  const std::string where = detail::concat(context().device, ", ", context().threads, " threads");
  const char* how = settings.graph() ? ", CUDA graphs" : "";
  std::printf("godwit %s %s %s, %s%s, %s (%s)\n", settings.text("model").c_str(), settings.text("dtype").c_str(),
              what.c_str(), settings.text("optimizer").c_str(), how, where.c_str(), kernel_library().c_str());
  std::printf("  %.4f s/step (cores %.4f s)  %.2f %s/s", step, median(timer.cpu_s), settings.number("batch") / step,
              unit);
  if (!settings.graph())
    std::printf("   forward %.4f  backward %.4f  rest %.4f", median(timer.forward_s), median(timer.backward_s),
                median(timer.rest_s));
  std::printf("   peak %.0f MB resident, %.0f MB tensors   loss %.4f -> %.4f\n", resident_mb(), tensor_mb(), first,
              last);
  if (!settings.json()) return;
  JsonLine line;
  line.add("name", detail::concat("godwit ", settings.text("model"), " ", settings.text("dtype"), " ", what, ", ",
                                  settings.text("optimizer"), how))
      .add("s_per_step", step)
      .add("per_s", settings.number("batch") / step)
      .add("core_s", median(timer.cpu_s));
  if (!settings.graph())
    line.add("forward_s", median(timer.forward_s))
        .add("backward_s", median(timer.backward_s))
        .add("rest_s", median(timer.rest_s))
        .add("waited_s", median(timer.waited_s));
  line.add("tensor_mb", tensor_mb()).add("first_loss", first).add("last_loss", last).print();
}

}  // namespace godwit::bench
