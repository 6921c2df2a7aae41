// Times a training step of an image classifier on random images with one rank: median by phase, peak memory.
//   bench_train_step [model=resnet50] [batch=16] [image=224] [optimizer=sgdm] [threads=cores] [steps=7] [dtype=f32]
//                    [graph=0] [dnn_timing=0] [device=cpu] [json=0]
// graph=1: captures the passes as CUDA graphs. dnn_timing=1: times cuDNN's engines that have no recorded choice.
// bench/peers/train_step.py is the PyTorch counterpart. bench/peers/compare alternates both.
#include "autograd/ops/softmax_cross_entropy.h"
#include "bench/program.h"
#include "bench/step.h"
#include "engine/context.h"
#include "engine/philox.h"
#include "models/image_model.h"

using namespace godwit;

namespace {

void run(const bench::Settings& settings, Communicator& comm) {
  const ContextGuard guard([&](Context& next) { next.dnn_timing = settings.text("dnn_timing") == "1"; });
  const int batch = settings.number("batch"), image = settings.number("image");
  const Shape shape{image, image, 3};
  const auto model = make_image_model(
      settings.text("model"), {.image = shape, .dtype = settings.dtype(), .zero_init_residual = true});
  RandomStream random(1, Purpose::test);
  std::vector<float> pixels(static_cast<size_t>(batch * shape.numel()));
  const Tensor labels({batch}, DType::i32, kCpu);  // on the CPU, as with a loader, because the host checks labels
  for (float& value : pixels) value = static_cast<float>(random.normal());
  for (int32_t& label : labels.span<int32_t>()) label = static_cast<int32_t>(random.below(10));
  const Tensor images = Tensor::of(pixels, {batch, image, image, 3});
  const std::string what = detail::concat("batch ", batch, ", ", image, "x", image);
  const double lr = settings.text("optimizer") == "sgdm" ? 0.002 : 1e-4;
  bench::time_steps(settings, comm, *model, lr, what, "images",
                    [&](int step) {
                      const DropoutContext run{1, static_cast<uint32_t>(step), 0};
                      return ops::softmax_cross_entropy(model->forward(Var(images), &run), labels);
                    });
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_train_step [KEY=VALUE…]\n"
      "A training step of an image classifier on random images, one rank: median time by phase, peak memory.\n"
      "keys: model=resnet50 batch=16 image=224 optimizer=sgdm threads=0 (0: all cores) steps=7 dtype=f32|bf16\n"
      "      graph=0 (1: CUDA graphs) dnn_timing=0 (1: time cuDNN's engines) device=cpu json=0 (1: one line of JSON)";
  return bench::run_program(argc, argv, usage, [&] {
    const bench::Settings settings(argc, argv,
                                   {{"model", "resnet50"}, {"batch", "16"},  {"image", "224"}, {"optimizer", "sgdm"},
                                    {"threads", "0"},      {"steps", "7"},   {"dtype", "f32"}, {"graph", "0"},
                                    {"dnn_timing", "0"}});
    settings.run_alone(settings.number("threads"), [&](Communicator& comm) { run(settings, comm); });
  });
}
