// Compares image classifiers with PyTorch: logits, running statistics, every parameter's gradient, ten losses.
#pragma once
#include <algorithm>
#include <memory>
#include <utility>

#include "autograd/ops/softmax_cross_entropy.h"
#include "engine/context.h"
#include "models/resnet.h"
#include "models/vgg.h"
#include "models/vit.h"
#include "tests/models/golden.h"

namespace godwit::image_golden {

using nlohmann::json;
using test::golden_images;
using test::golden_labels;
using test::summary;

// Allowed distance from PyTorch's float64 results, relative to the norm. For samples, it is relative to the root mean
// square, for losses to the first loss.
struct Tolerance {
  double logits, eval_logits, losses, norm, dot, sample, running;
};

// float64: rounding, amplified by the same factor as for float32. In the golden files, PyTorch's float32 gradients have
// errors of up to 3e-2, which is 5e5 roundings of 6e-8. The same number of float64 roundings (1e-16) is 1e-10.
inline constexpr Tolerance kFloat64{1e-10, 1e-10, 1e-10, 1e-10, 1e-10, 1e-9, 1e-10};

// float32: four times the largest distance from float64 among a dozen float32 runs of PyTorch whose initial weights
// differ by one rounding; at least 4e-6. The factor is eight on a GPU, where the order of sums also differs, and for
// losses, because ten steps amplify the different orders of other processors. In some runs, a ReLU flips, which has a
// much larger effect than the rounding.
inline Tolerance float32_tolerance(const json& error) {
  const double factor = context().device.is_cuda() ? 8 : 4;
  auto from = [&](const char* key) { return std::max(factor * error[key].get<double>(), 4e-6); };
  const double losses = std::max(8 * error["losses"].get<double>(), 4e-6);
  return {from("logits"),        from("eval_logits"),      losses,                from("gradients_norm"),
          from("gradients_dot"), from("gradients_sample"), from("running_sample")};
}

inline double relative_error(const std::vector<double>& expected, const Tensor& anywhere) {
  const Tensor actual = anywhere.to(kCpu);
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(expected[i] - actual.item(static_cast<int64_t>(i)), 2);
    norm += std::pow(expected[i], 2);
  }
  return std::sqrt(error / norm);
}

inline void expect_summary(const json& expected, const std::string& name, const Tensor& tensor, double norm, double dot,
                           double sample) {
  ASSERT_TRUE(expected.contains(name)) << name;
  const auto golden = expected[name].get<std::vector<double>>();
  const std::vector<double> actual = summary(name, tensor, golden.size());
  EXPECT_NEAR(actual[0], golden[0], norm * golden[0]) << name << ": norm";
  EXPECT_NEAR(actual[1], golden[1], dot * golden[0]) << name << ": dot";
  const double rms = golden[0] / std::sqrt(static_cast<double>(tensor.numel()));
  for (size_t k = 2; k < golden.size(); ++k)
    EXPECT_NEAR(actual[k], golden[k], sample * rms) << name << ": sample " << k;
}

// v = momentum·v + g; p -= lr·v, as in torch.optim.SGD. Computed on the CPU for parameters on any device.
class Sgd {
 public:
  Sgd(std::vector<Parameter> parameters, double lr, double momentum)
      : parameters_(std::move(parameters)), lr_(lr), momentum_(momentum) {
    for (const Parameter& p : parameters_) velocity_.push_back(zeros(p.var));
  }
  void step() {
    for (size_t k = 0; k < parameters_.size(); ++k)
      dispatch_real(velocity_[k].dtype(), "sgd", [&]<class T>() {
        const T lr = static_cast<T>(lr_), momentum = static_cast<T>(momentum_);
        const Tensor x = parameters_[k].var.value().to(kCpu), g = parameters_[k].var.grad().to(kCpu);
        const auto value = x.span<T>(), grad = g.span<T>();
        const auto velocity = velocity_[k].span<T>();
        for (size_t i = 0; i < value.size(); ++i) {
          velocity[i] = momentum * velocity[i] + grad[i];
          value[i] -= lr * velocity[i];
        }
        parameters_[k].var.value().copy_from(x);
      });
    for (const Parameter& p : parameters_) p.var.clear_grad();
  }

 private:
  static Tensor zeros(const Var& like) {
    const Tensor values(like.shape(), like.dtype(), kCpu);
    values.zero();
    return values;
  }

  std::vector<Parameter> parameters_;
  std::vector<Tensor> velocity_;
  double lr_, momentum_;
};

// The losses of `steps` steps of gradient descent on random labels. Uses one thread: with two, runs on a busy machine
// took minutes instead of seconds.
inline std::vector<double> losses_on_random_labels(const ImageModel& model, Shape images, uint32_t classes,
                                                   uint32_t steps, double lr) {
  ContextGuard guard(Context{.threads = 1});
  const Var x(golden_images(images, DType::f32));
  const Tensor labels = golden_labels(images[0], classes);
  Sgd sgd(model.parameters(), lr, 0);
  std::vector<double> losses;
  for (uint32_t step = 0; step < steps; ++step) {
    const DropoutContext run{1, step, 0};
    const Var loss = ops::softmax_cross_entropy(model.forward(x, &run), labels);
    backward(loss);
    sgd.step();
    losses.push_back(loss.value().item());
  }
  return losses;
}

// The networks of make_golden.py and make_vgg_vit_golden.py.
inline std::unique_ptr<ImageModel> golden_model(const std::string& name, int64_t classes, DType dtype) {
  const auto with = [&](auto config) {
    config.num_classes = classes, config.dtype = dtype;
    return config;
  };
  if (name == "vit") {
    VitConfig config = with(VitConfig{.hidden_dim = 24, .layers = 2, .heads = 3, .mlp_dim = 96, .patch_size = 4});
    config.height = config.width = 16;
    return make_vit(config);
  }
  if (name.starts_with("resnet")) return make_resnet(with(resnet_config(name)));
  VggConfig config = with(vgg_config(name));
  config.stages = {{8, 8}, {16, 16}, {16, 24, 24}, {24, 32, 32}, {32, 32, 32}};
  config.hidden = 40, config.dropout = 0;
  return make_vgg(config);
}

// Whether the gradient is 0 up to rounding, because batch norm removes the biases of VGG's convolutions.
inline bool is_bias_before_batch_norm(const Parameter& p, const nn::Module& model) {
  if (!p.name.starts_with("features.") || !p.name.ends_with(".bias") || model.buffers().empty()) return false;
  const std::string weight = p.name.substr(0, p.name.size() - 4) + "weight";
  for (const Parameter& other : model.parameters())
    if (other.name == weight) return other.var.shape().rank() == 4;
  return false;
}

// Runs on the context's device, for at most `steps` steps.
inline void expect_golden(const std::string& name, DType dtype, const Tolerance* given = nullptr, size_t steps = 10) {
  const json golden = test::read_golden(name + ".json");
  const Tolerance tolerance = given                 ? *given
                              : dtype == DType::f64 ? kFloat64
                                                    : float32_tolerance(golden["float32_error"]);
  const int64_t batch = golden["batch"], size = golden["image"], classes = golden["classes"];
  const auto model = golden_model(name, classes, dtype);
  test::fill_by_formula(*model);
  const Var x(golden_images({batch, size, size, 3}, compute_dtype(dtype)).to(context().device));
  const Tensor labels = golden_labels(batch, static_cast<uint32_t>(classes));

  model->train(false);
  {
    NoGrad off;
    EXPECT_LE(relative_error(golden["eval_logits"], model->forward(x).value()), tolerance.eval_logits);
  }
  model->train();
  Sgd sgd(model->parameters(), golden["lr"], golden["momentum"]);
  const auto losses = golden["losses"].get<std::vector<double>>();
  for (size_t step = 0; step < std::min(steps, losses.size()); ++step) {
    const Var logits = model->forward(x);
    const Var loss = ops::softmax_cross_entropy(logits, labels, golden["label_smoothing"]);
    backward(loss);
    EXPECT_NEAR(loss.value().item(), losses[step], tolerance.losses * losses[0]) << "step " << step;
    if (step == 0) {
      EXPECT_LE(relative_error(golden["logits"], logits.value()), tolerance.logits);
      size_t compared = 0;
      double largest = 0;  // largest norm of a gradient
      for (const Parameter& p : model->parameters()) largest = std::max(largest, summary("", p.var.grad(), 2)[0]);
      for (const Parameter& p : model->parameters()) {
        if (is_bias_before_batch_norm(p, *model)) {
          EXPECT_LE(summary("", p.var.grad(), 2)[0], tolerance.norm * largest) << p.name;
          continue;
        }
        ++compared;
        expect_summary(golden["gradients"], p.name, p.var.grad(), tolerance.norm, tolerance.dot, tolerance.sample);
      }
      EXPECT_EQ(compared, golden["gradients"].size());
      ASSERT_EQ(model->buffers().size(), golden["running"].size());
      for (const nn::NamedTensor& b : model->buffers())
        expect_summary(golden["running"], b.name, b.tensor, tolerance.running, tolerance.running, tolerance.running);
    }
    sgd.step();
  }
}

}  // namespace godwit::image_golden
