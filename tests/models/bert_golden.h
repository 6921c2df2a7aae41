// Small BERTs compared with HuggingFace transformers: outputs, every parameter's gradient, ten steps of AdamW.
#pragma once
#include <functional>

#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/exchange/method.h"
#include "comm/host_tensor.h"
#include "engine/context.h"
#include "models/bert.h"
#include "optim/method.h"
#include "tests/models/transformer_golden.h"

namespace godwit::bert_golden {

using nlohmann::json;
using testing::expect_summary, testing::float32_tolerance, testing::kFloat64, testing::on_rank, testing::summary;
using testing::table, testing::Tolerance;

// The inputs of make_bert_golden.py: texts of different lengths, padded with id 0.
struct Golden {
  json file = testing::read_golden("bert.json");
  int64_t length = file["length"], batch = std::ssize(file["lengths"]), n = batch * length;
  BertConfig config;
  TextInput input;
  Tensor masked = cpu_tensor(file["masked"].get<std::vector<int32_t>>());

  explicit Golden(DType dtype) {
    const json& sizes = file["config"];
    config.vocab_size = sizes["vocab_size"];
    config.hidden_size = sizes["hidden_size"];
    config.num_hidden_layers = sizes["num_hidden_layers"];
    config.num_attention_heads = sizes["num_attention_heads"];
    config.intermediate_size = sizes["intermediate_size"];
    config.max_position_embeddings = sizes["max_position_embeddings"];
    config.labels = {"a", "b", "c"};
    config.dtype = dtype;
    input = {table("ids", n, config.vocab_size - 1), table("types", n, 2), Tensor({n}, DType::u8, kCpu)};
    for (int64_t i = 0; i < n; ++i) {
      const bool token = i % length < file["lengths"][static_cast<size_t>(i / length)].get<int64_t>();
      input.mask.data<uint8_t>()[i] = token;
      int32_t &id = input.ids.data<int32_t>()[i], &type = input.token_type_ids.data<int32_t>()[i];
      id = token ? id + 1 : 0;
      type = token ? type : 0;
    }
    for (Tensor* t : {&input.ids, &input.token_type_ids, &input.mask}) *t = t->view({batch, length});
  }
};

using Outputs = std::vector<std::pair<std::string, Tensor>>;

// Returns the head's loss, and its outputs with their names in the golden file.
inline Var run_head(const BertForPreTraining& model, const Golden& golden, Outputs* outputs) {
  const auto out = model.forward(golden.input, golden.masked);
  *outputs = {{"prediction_logits", out.prediction_logits.value()},
              {"next_sentence_logits", out.next_sentence_logits.value()}};
  return pretraining_loss(out, table("masked", golden.masked.numel(), golden.config.vocab_size),
                          table("next", golden.batch, 2));
}

inline Var run_head(const BertForMaskedLM& model, const Golden& golden, Outputs* outputs) {
  const Var logits = model.forward(golden.input, golden.masked);
  *outputs = {{"prediction_logits", logits.value()}};
  return ops::softmax_cross_entropy(logits, table("masked", golden.masked.numel(), golden.config.vocab_size));
}

inline Var run_head(const BertForQuestionAnswering& model, const Golden& golden, Outputs* outputs) {
  const Var logits = model.forward(golden.input);
  *outputs = {{"logits", logits.value()}};
  return question_answering_loss(logits, table("starts", golden.batch, golden.length),
                                 table("ends", golden.batch, golden.length));
}

inline Var run_head(const BertForSequenceClassification& model, const Golden& golden, Outputs* outputs) {
  const Var logits = model.forward(golden.input);
  *outputs = {{"logits", logits.value()}};
  return ops::softmax_cross_entropy(logits, table("labels", golden.batch, std::ssize(golden.config.labels)));
}

// Runs ten steps of AdamW and returns the losses. Calls `first` after the first backward.
template <class Model>
std::vector<double> train(const Model& model, const Golden& golden, Communicator& comm,
                          const std::function<void(const Outputs&)>& first) {
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
    Outputs outputs;
    const Var loss = run_head(model, golden, &outputs);
    backward(loss);
    losses.push_back(loss.value().item());
    if (step == 0) {
      NoGrad off;
      outputs.emplace_back("hidden", model.bert().forward(golden.input).value());
      first(outputs);
    }
    for (Bucket& bucket : buckets) {
      optimizer->exchange(bucket, comm, info);
      optimizer->apply(bucket, info);
    }
    for (const Parameter& p : model.parameters()) p.var.clear_grad();
  }
  return losses;
}

// Runs on a single rank.
template <class Model>
void expect_golden(Communicator& comm, DType dtype) {
  Golden golden(dtype);
  const std::string name = Model(golden.config).architecture();
  SCOPED_TRACE(name);
  const json& expected = golden.file["heads"][name];
  const double nothing = golden.file["nothing"];
  const Tolerance tolerance = dtype == DType::f64 ? kFloat64 : float32_tolerance(expected["float32_error"]);
  golden.config.hidden_act = expected["hidden_act"];
  const Model model(golden.config);
  testing::fill_by_formula(model);

  std::vector<std::string> shapes;
  for (const Parameter& p : model.parameters()) shapes.push_back(p.name + " " + p.var.shape().str());
  EXPECT_EQ(shapes, expected["shapes"].get<std::vector<std::string>>()) << "names, order or shapes differ";

  const auto losses = train(model, golden, comm, [&](const Outputs& outputs) {
    ASSERT_EQ(outputs.size(), expected["outputs"].size());
    for (const auto& [output, value] : outputs) expect_summary(expected["outputs"], nothing, output, value, tolerance);
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
  const json& expected = golden.file["heads"]["BertForPreTraining"];
  const BertForPreTraining model(golden.config);
  testing::fill_by_formula(model);
  const auto losses = train(model, golden, comm, [&](const Outputs& outputs) {
    for (const auto& [output, value] : outputs) {
      EXPECT_EQ(value.dtype(), output == "hidden" ? DType::bf16 : DType::f32) << output;
      expect_summary(expected["outputs"], 0, output, value, {0, 0.02, 0.02, 0.1, 0});
    }
    for (const Parameter& p : model.parameters()) {
      EXPECT_EQ(p.var.grad().dtype(), DType::f32) << p.name;
      const auto gradient = expected["gradients"][p.name].get<std::vector<double>>();
      const std::vector<double> actual = summary(p.name, p.var.grad(), gradient.size());
      const double norm = gradient[0] < golden.file["nothing"].get<double>() ? 0.1 : gradient[0];
      EXPECT_NEAR(actual[0], gradient[0], 0.05 * norm) << p.name << ": norm";
      EXPECT_NEAR(actual[1], gradient[1], 0.1 * norm) << p.name << ": dot";
    }
  });
  for (size_t step = 0; step < losses.size(); ++step)
    EXPECT_NEAR(losses[step], expected["losses"][step].get<double>(), 0.02 * losses[0]) << "step " << step;
}

template <class Model>
void expect_golden_on(const std::string& device, DType dtype) {
  on_rank(device, [&](Communicator& comm) { expect_golden<Model>(comm, dtype); });
}

}  // namespace godwit::bert_golden
