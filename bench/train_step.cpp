// A whole training step of a ResNet on random images, one rank: the median over steps, by phase, and the peak memory.
//   bench_train_step [model=resnet50] [batch=16] [image=224] [optimizer=sgdm] [threads=cores] [steps=7] [dtype=f32]
// bench/peers/train_step.py does the same with PyTorch; bench/peers/compare alternates the two.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/local.h"
#include "comm/scheduler.h"
#include "engine/kernel_library.h"
#include "engine/philox.h"
#include "models/resnet.h"
#include "optim/factory.h"

using namespace godwit;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double resident_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024e-6;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Settings {
  std::map<std::string, std::string> values{{"model", "resnet50"}, {"batch", "16"},  {"image", "224"},
                                            {"optimizer", "sgdm"}, {"threads", "0"}, {"steps", "7"},
                                            {"dtype", "f32"}};
  Settings(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      const size_t equals = argument.find('=');
      check(equals != std::string::npos && values.contains(argument.substr(0, equals)), "bench_train_step: '", argument,
            "' is none of model= batch= image= optimizer= threads= steps= dtype=");
      values[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
  }
  const std::string& text(const char* name) const { return values.at(name); }
  int number(const char* name) const { return std::stoi(values.at(name)); }
};

void run(const Settings& settings, Communicator& comm) {
  const int batch = settings.number("batch"), image = settings.number("image"), steps = settings.number("steps");
  ResNetConfig model_config = resnet_config(settings.text("model"));
  model_config.zero_init_residual = true;
  check(settings.text("dtype") == "f32" || settings.text("dtype") == "bf16", "bench_train_step: dtype is f32 or bf16");
  model_config.dtype = settings.text("dtype") == "bf16" ? DType::bf16 : DType::f32;
  const auto model = make_resnet(model_config);
  Buckets buckets(model->parameters(), {});
  OptimizerConfig config = optimizer_defaults(settings.text("optimizer"));
  config.weight_decay = 1e-4;
  const auto optimizer =
      make_optimizer(config, buckets, comm, 1, communicates_itself(config.name) ? nullptr : make_exchange("dense"));
  StepInfo info{0, settings.text("optimizer") == "sgdm" ? 0.002 : 1e-4};
  Scheduler scheduler(buckets, [&](Bucket& bucket) {
    optimizer->exchange(bucket, comm, info);
    optimizer->apply(bucket, info);
  });

  RandomStream random(1, Purpose::test);
  Tensor images({batch, image, image, model_config.in_channels}), labels({batch}, DType::i32);
  for (float& value : images.span<float>()) value = static_cast<float>(random.normal());
  for (int32_t& label : labels.span<int32_t>()) label = static_cast<int32_t>(random.below(10));

  std::vector<double> step_s, forward_s, backward_s, rest_s, losses;
  for (int i = 0; i < steps + 2; ++i) {  // two to warm up
    ++info.step;
    const double start = now();
    scheduler.begin_step();
    const Var loss = ops::softmax_cross_entropy(model->forward(Var(images)), labels);
    const double forward = now();
    backward(loss);
    const double back = now();
    scheduler.finish_step();
    losses.push_back(loss.value().item());
    if (i < 2) continue;
    step_s.push_back(now() - start);
    forward_s.push_back(forward - start);
    backward_s.push_back(back - forward);
    rest_s.push_back(now() - back);
  }
  check(std::isfinite(losses.back()) && losses.back() < losses.front(), "bench_train_step: the loss went from ",
        losses.front(), " to ", losses.back(), ": this does not train");
  std::printf("godwit %s %s batch %d, %dx%d, %s, %d threads (%s)\n", settings.text("model").c_str(),
              settings.text("dtype").c_str(), batch, image, image, config.name.c_str(), context().threads,
              kernel_library().c_str());
  const double step = median(step_s);
  std::printf(
      "  %.3f s/step  %.2f images/s   forward %.3f  backward %.3f  rest %.3f   peak %.0f MB resident, %.0f MB tensors  "
      " loss %.4f -> %.4f\n",
      step, batch / step, median(forward_s), median(backward_s), median(rest_s), resident_mb(),
      static_cast<double>(context().pool->stats().peak_bytes_in_use) * 1e-6, losses.front(), losses.back());
}

}  // namespace

int main(int argc, char** argv) try {
  const Settings settings(argc, argv);
  LocalOptions options;
  options.threads_per_rank = settings.number("threads");
  run_local(
      {1, 1}, [&](Communicator& comm) { run(settings, comm); }, options);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
