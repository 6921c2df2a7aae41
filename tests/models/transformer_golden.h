// Compares small transformers with HuggingFace transformers: tolerances and summaries.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "comm/exchange/method.h"
#include "comm/transport/local.h"
#include "optim/method.h"
#include "tests/models/golden.h"

namespace godwit::test {

using nlohmann::json;

// Allowed distance from HuggingFace's float64 results. For norms and dot products, it is relative to the norm, for
// samples to the root mean square, for losses to the first loss.
struct Tolerance {
  double losses, norm, dot, sample, parameters;
};

// float64: rounding, amplified a hundred times as for float32 in the golden file (6e-6 from 6e-8). AdamW amplifies the
// rounding of tiny gradients, so parameters after ten steps have a tolerance of 1e5 roundings.
inline constexpr Tolerance kFloat64{1e-12, 1e-12, 1e-12, 1e-12, 1e-10};

// float32: four times the largest distance from float64 among a dozen float32 runs of PyTorch whose initial weights
// differ by one rounding; at least 4e-6.
inline Tolerance float32_tolerance(const json& error) {
  auto from = [&](const char* key) { return std::max(4 * error[key].get<double>(), 4e-6); };
  return {from("losses"), from("gradients_norm"), from("gradients_dot"),
          std::max(from("gradients_sample"), from("outputs_sample")), from("parameters_sample")};
}

inline void expect_summary(const json& expected, double nothing, const std::string& name, const Tensor& tensor,
                           const Tolerance& tolerance) {
  ASSERT_TRUE(expected.contains(name)) << name;
  const auto golden = expected[name].get<std::vector<double>>();
  const std::vector<double> actual = summary(name, tensor, golden.size());
  if (golden[0] < nothing) {  // only rounding of gradients of order 1 remains
    EXPECT_LE(actual[0], tolerance.norm) << name << ": exceeds rounding";
    return;
  }
  EXPECT_NEAR(actual[0], golden[0], tolerance.norm * golden[0]) << name << ": norm";
  EXPECT_NEAR(actual[1], golden[1], tolerance.dot * golden[0]) << name << ": dot";
  const double rms = golden[0] / std::sqrt(static_cast<double>(tensor.numel()));
  for (size_t k = 2; k < golden.size(); ++k)
    EXPECT_NEAR(actual[k], golden[k], tolerance.sample * rms) << name << ": sample " << k;
}

inline Tensor table(const char* name, int64_t n, int64_t limit) {
  Tensor values({n}, DType::i32, kCpu);
  for (int64_t i = 0; i < n; ++i)
    values.data<int32_t>()[i] = static_cast<int32_t>(hashed_word(fnv1a(name), i) % static_cast<uint32_t>(limit));
  return values;
}

using Outputs = std::vector<std::pair<std::string, Tensor>>;
// Computes the loss. Sets the outputs by their names in the golden file, unless the pointer is null.
using Forward = std::function<Var(Outputs*)>;

// Runs ten steps of AdamW and returns the losses. Calls first(outputs) after the first backward pass.
inline std::vector<double> train(const nn::Module& model, const json& adamw, Communicator& comm, const Forward& forward,
                                 const std::function<void(const Outputs&)>& first) {
  std::vector<double> losses;
  OptimizerConfig config = "adamw";
  config.set("decay_norm_and_bias", false);
  config.set("weight_decay", adamw["weight_decay"].get<double>());
  config.set("beta1", adamw["betas"][0].get<double>());
  config.set("beta2", adamw["betas"][1].get<double>());
  config.set("eps", adamw["eps"].get<double>());
  Buckets buckets(model.parameters(), {});
  const auto optimizer = make_optimizer(config, {buckets, comm, 1, make_exchange("dense", buckets, comm, 1)});
  StepInfo info{0, adamw["lr"]};
  for (size_t step = 0; step < 10; ++step) {
    ++info.step;
    Outputs outputs;
    const Var loss = forward(step == 0 ? &outputs : nullptr);
    backward(loss);
    losses.push_back(loss.value().item());
    if (step == 0) first(outputs);
    for (Bucket& bucket : buckets) {
      optimizer->exchange(bucket, comm, info);
      optimizer->apply(bucket, info);
    }
    for (const Parameter& p : model.parameters()) p.var.clear_grad();
  }
  return losses;
}

// Fills the model with the formula and trains it on one rank. Compares names, outputs, gradients, losses and parameters
// with `expected`, which is a part of the golden file.
inline void expect_training(const nn::Module& model, const json& file, const json& expected, DType dtype,
                            Communicator& comm, const Forward& forward) {
  const double nothing = file["nothing"];
  const Tolerance tolerance = dtype == DType::f64 ? kFloat64 : float32_tolerance(expected["float32_error"]);
  fill_by_formula(model);
  std::vector<std::string> shapes;
  for (const Parameter& p : model.parameters()) shapes.push_back(p.name + " " + p.var.shape().str());
  EXPECT_EQ(shapes, expected["shapes"].get<std::vector<std::string>>()) << "names, order or shapes differ";
  const auto losses = train(model, file["adamw"], comm, forward, [&](const Outputs& outputs) {
    ASSERT_EQ(outputs.size(), expected["outputs"].size());
    for (const auto& [name, value] : outputs) expect_summary(expected["outputs"], nothing, name, value, tolerance);
    for (const Parameter& p : model.parameters())
      expect_summary(expected["gradients"], nothing, p.name, p.var.grad(), tolerance);
  });
  const auto golden_losses = expected["losses"].get<std::vector<double>>();
  ASSERT_EQ(losses.size(), golden_losses.size());
  for (size_t step = 0; step < losses.size(); ++step)
    EXPECT_NEAR(losses[step], golden_losses[step], tolerance.losses * golden_losses[0]) << "step " << step;
  const double after = tolerance.parameters;
  for (const Parameter& p : model.parameters())
    expect_summary(expected["parameters"], nothing, p.name, p.var.value(), {0, after, after, after, 0});
}

// Compares a bfloat16 model approximately. bfloat16 has 8 significand bits (rounding of 2⁻⁹ = 0.2 %). Two layers
// contain about 30 consecutive roundings.
inline void expect_bfloat16_training(const nn::Module& model, const json& file, const json& expected,
                                     Communicator& comm, const Forward& forward) {
  fill_by_formula(model);
  const auto losses = train(model, file["adamw"], comm, forward, [&](const Outputs& outputs) {
    for (const auto& [name, value] : outputs) {
      EXPECT_EQ(value.dtype(), name == "hidden" ? DType::bf16 : DType::f32) << name;
      expect_summary(expected["outputs"], 0, name, value, {0, 0.02, 0.02, 0.1, 0});
    }
    for (const Parameter& p : model.parameters()) {
      EXPECT_EQ(p.var.grad().dtype(), DType::f32) << p.name;
      const auto gradient = expected["gradients"][p.name].get<std::vector<double>>();
      const std::vector<double> actual = summary(p.name, p.var.grad(), gradient.size());
      const double norm = gradient[0] < file["nothing"].get<double>() ? 0.1 : gradient[0];
      EXPECT_NEAR(actual[0], gradient[0], 0.05 * norm) << p.name << ": norm";
      EXPECT_NEAR(actual[1], gradient[1], 0.1 * norm) << p.name << ": dot";
    }
  });
  for (size_t step = 0; step < losses.size(); ++step)
    EXPECT_NEAR(losses[step], expected["losses"][step].get<double>(), 0.02 * losses[0]) << "step " << step;
}

// Runs f(comm) on one rank on `device`.
inline void on_rank(const std::string& device, const std::function<void(Communicator&)>& f) {
  run_local({1, 1}, f, {.placement = {device}});
}

}  // namespace godwit::test
