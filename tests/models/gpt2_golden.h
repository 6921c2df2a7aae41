// A small GPT-2 compared with HuggingFace transformers: logits, every parameter's gradient, ten steps of AdamW.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/exchange/method.h"
#include "engine/context.h"
#include "models/gpt2.h"
#include "optim/method.h"
#include "tests/models/transformer_golden.h"

namespace godwit::gpt2_golden {

using nlohmann::json;
using testing::expect_summary, testing::summary, testing::table;

// The inputs of make_gpt2_golden.py.
struct Golden {
  json file = testing::read_golden("gpt2.json");
  int64_t batch = file["batch"], length = file["length"];
  Gpt2Config config;
  Tensor ids, labels;

  explicit Golden(DType dtype) {
    const json& sizes = file["config"];
    config.vocab_size = sizes["vocab_size"];
    config.n_positions = sizes["n_positions"];
    config.n_embd = sizes["n_embd"];
    config.n_layer = sizes["n_layer"];
    config.n_head = sizes["n_head"];
    config.dtype = dtype;
    ids = table("ids", batch * length, config.vocab_size).view({batch, length});
    labels = table("labels", batch * length, config.vocab_size);
  }
};

// Runs ten steps of AdamW and returns the losses. Calls first(logits) after the first backward.
inline std::vector<double> train(const Gpt2& model, const Golden& golden, Communicator& comm,
                                 const std::function<void(const Tensor& logits)>& first) {
  std::vector<double> losses;
  const json& adamw = golden.file["adamw"];
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
    const Var logits = model.logits(model.forward(golden.ids));
    const Var loss = ops::softmax_cross_entropy(logits, golden.labels);
    backward(loss);
    losses.push_back(loss.value().item());
    if (step == 0) first(logits.value());
    for (Bucket& bucket : buckets) {
      optimizer->exchange(bucket, comm, info);
      optimizer->apply(bucket, info);
    }
    for (const Parameter& p : model.parameters()) p.var.clear_grad();
  }
  return losses;
}

inline void expect_golden(Communicator& comm, const std::string& activation, DType dtype) {
  Golden golden(dtype);
  SCOPED_TRACE(activation);
  const json& expected = golden.file["activations"][activation];
  const double nothing = golden.file["nothing"];
  const testing::Tolerance tolerance =
      dtype == DType::f64 ? testing::kFloat64 : testing::float32_tolerance(expected["float32_error"]);
  golden.config.activation_function = activation;
  const Gpt2 model(golden.config);
  testing::fill_by_formula(model);

  std::vector<std::string> shapes;
  for (const Parameter& p : model.parameters()) shapes.push_back(p.name + " " + p.var.shape().str());
  EXPECT_EQ(shapes, expected["shapes"].get<std::vector<std::string>>()) << "names, order or shapes differ";

  const auto losses = train(model, golden, comm, [&](const Tensor& logits) {
    expect_summary(expected["outputs"], nothing, "logits", logits, tolerance);
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

// bfloat16 has 8 significand bits (rounding of 2⁻⁹ = 0.2 %); two layers contain about 30 consecutive roundings.
inline void expect_bfloat16_near_float64(Communicator& comm) {
  Golden golden(DType::bf16);
  const json& expected = golden.file["activations"]["gelu_new"];
  const Gpt2 model(golden.config);
  testing::fill_by_formula(model);
  const auto losses = train(model, golden, comm, [&](const Tensor& logits) {
    EXPECT_EQ(logits.dtype(), DType::f32);
    expect_summary(expected["outputs"], 0, "logits", logits, {0, 0.02, 0.02, 0.1, 0});
    for (const Parameter& p : model.parameters()) {
      const auto gradient = expected["gradients"][p.name].get<std::vector<double>>();
      const std::vector<double> actual = summary(p.name, p.var.grad(), gradient.size());
      EXPECT_NEAR(actual[0], gradient[0], 0.05 * gradient[0]) << p.name << ": norm";
      EXPECT_NEAR(actual[1], gradient[1], 0.1 * gradient[0]) << p.name << ": dot";
    }
  });
  for (size_t step = 0; step < losses.size(); ++step)
    EXPECT_NEAR(losses[step], expected["losses"][step].get<double>(), 0.02 * losses[0]) << "step " << step;
}

inline void expect_golden_on(const std::string& device, const std::string& activation, DType dtype) {
  testing::on_rank(device, [&](Communicator& comm) { expect_golden(comm, activation, dtype); });
}

}  // namespace godwit::gpt2_golden
