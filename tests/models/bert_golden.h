// Compares small BERT models with HuggingFace transformers: outputs, every parameter's gradient, ten steps of AdamW.
#pragma once
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/host_tensor.h"
#include "engine/context.h"
#include "models/bert.h"
#include "tests/models/transformer_golden.h"

namespace godwit::bert_golden {

using nlohmann::json;
using test::on_rank, test::Outputs, test::table;

// The inputs of make_bert_golden.py: texts of different lengths, padded with id 0.
struct Golden {
  json file = test::read_golden("bert.json");
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

template <class Model>
test::Forward forward_of(const Model& model, const Golden& golden) {
  return [&](Outputs* outputs) {
    Outputs found;
    const Var loss = run_head(model, golden, &found);
    if (!outputs) return loss;
    const NoGrad off;
    found.emplace_back("hidden", model.bert().forward(golden.input).value());
    *outputs = found;
    return loss;
  };
}

// Runs on a single rank.
template <class Model>
void expect_golden(Communicator& comm, DType dtype) {
  Golden golden(dtype);
  const std::string name = Model(golden.config).architecture();
  SCOPED_TRACE(name);
  const json& expected = golden.file["heads"][name];
  golden.config.hidden_act = expected["hidden_act"];
  const Model model(golden.config);
  test::expect_training(model, golden.file, expected, dtype, comm, forward_of(model, golden));
}

inline void expect_bfloat16_near_float64(Communicator& comm) {
  const Golden golden(DType::bf16);
  const BertForPreTraining model(golden.config);
  test::expect_bfloat16_training(model, golden.file, golden.file["heads"]["BertForPreTraining"], comm,
                                    forward_of(model, golden));
}

template <class Model>
void expect_golden_on(const std::string& device, DType dtype) {
  on_rank(device, [&](Communicator& comm) { expect_golden<Model>(comm, dtype); });
}

}  // namespace godwit::bert_golden
