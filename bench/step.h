// What the benchmarks of whole training steps share: name=value settings, and one rank's step timed by its phases.
#pragma once
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/local.h"
#include "comm/scheduler.h"
#include "engine/kernel_library.h"
#include "nn/module.h"
#include "optim/factory.h"

namespace godwit::bench {

class Settings {
 public:
  Settings(int argc, char** argv, std::map<std::string, std::string> defaults) : values_(std::move(defaults)) {
    std::string names;
    for (const auto& [name, value] : values_) names += " " + name + "=";
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      const size_t equals = argument.find('=');
      check(equals != std::string::npos && values_.contains(argument.substr(0, equals)), argv[0], ": '", argument,
            "' is none of", names);
      values_[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
    check(text("dtype") == "f32" || text("dtype") == "bf16", argv[0], ": dtype is f32 or bf16");
  }
  const std::string& text(const char* name) const { return values_.at(name); }
  int number(const char* name) const { return std::stoi(values_.at(name)); }
  DType dtype() const { return text("dtype") == "bf16" ? DType::bf16 : DType::f32; }

 private:
  std::map<std::string, std::string> values_;
};

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Time of all threads on their cores: with threads=1 it compares on a busy machine too (more of them spin as they wait).
inline double cpu_now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

inline double resident_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024e-6;
}

// Steps `loss` by settings' optimizer, after two to warm up, and prints medians: `what` and samples per second as
// `unit`. Throws where the loss does not fall.
inline void time_steps(const Settings& settings, Communicator& comm, const nn::Module& model, double lr,
                       const std::string& what, const char* unit, const std::function<Var(int step)>& loss_of) {
  Buckets buckets(model.parameters(), {});
  OptimizerConfig config = optimizer_defaults(settings.text("optimizer"));
  config.weight_decay = 1e-4;
  const auto optimizer =
      make_optimizer(config, buckets, comm, 1, communicates_itself(config.name) ? nullptr : make_exchange({"dense"}, buckets, comm, 1));
  StepInfo info{0, lr};
  Scheduler scheduler(buckets, [&](Bucket& bucket) {
    optimizer->exchange(bucket, comm, info);
    optimizer->apply(bucket, info);
  });
  std::vector<double> step_s, cpu_s, forward_s, backward_s, rest_s, losses;
  for (int i = 0; i < settings.number("steps") + 2; ++i) {
    ++info.step;
    const double start = now(), cpu_start = cpu_now();
    scheduler.begin_step();
    const Var loss = loss_of(i);
    const double forward = now();
    backward(loss);
    const double back = now();
    scheduler.finish_step();
    losses.push_back(loss.value().item());
    if (i < 2) continue;
    step_s.push_back(now() - start);
    cpu_s.push_back(cpu_now() - cpu_start);
    forward_s.push_back(forward - start);
    backward_s.push_back(back - forward);
    rest_s.push_back(now() - back);
  }
  check(std::isfinite(losses.back()) && losses.back() < losses.front(), "the loss went from ", losses.front(), " to ",
        losses.back(), ": this does not train");
  std::printf("godwit %s %s %s, %s, %d threads (%s)\n", settings.text("model").c_str(), settings.text("dtype").c_str(),
              what.c_str(), config.name.c_str(), context().threads, kernel_library().c_str());
  const double step = median(step_s);
  std::printf(
      "  %.3f s/step (cores %.3f s)  %.2f %s/s   forward %.3f  backward %.3f  rest %.3f   peak %.0f MB resident, "
      "%.0f MB tensors   loss %.4f -> %.4f\n",
      step, median(cpu_s), settings.number("batch") / step, unit, median(forward_s), median(backward_s), median(rest_s),
      resident_mb(), static_cast<double>(context().pool->stats().peak_bytes_in_use) * 1e-6, losses.front(),
      losses.back());
}

// run(comm) as one rank of settings' threads; the exit status of main.
inline int main_of(const Settings& settings, const std::function<void(Communicator&)>& run) {
  LocalOptions options;
  options.threads_per_rank = settings.number("threads");
  run_local({1, 1}, run, options);
  return 0;
}

}  // namespace godwit::bench
