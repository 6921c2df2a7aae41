// Compares a small GPT-2 model with HuggingFace transformers: logits, every parameter's gradient, ten steps of AdamW.
#pragma once
#include <string>

#include "autograd/ops/softmax_cross_entropy.h"
#include "models/gpt2.h"
#include "tests/models/transformer_golden.h"

namespace godwit::gpt2_golden {

using nlohmann::json;
using test::table;

// The inputs of make_gpt2_golden.py.
struct Golden {
  json file = test::read_golden("gpt2.json");
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

inline test::Forward forward_of(const Gpt2& model, const Golden& golden) {
  return [&](test::Outputs* outputs) {
    const Var logits = model.logits(model.forward(golden.ids));
    if (outputs) *outputs = {{"logits", logits.value()}};
    return ops::softmax_cross_entropy(logits, golden.labels);
  };
}

inline void expect_golden(Communicator& comm, const std::string& activation, DType dtype) {
  Golden golden(dtype);
  SCOPED_TRACE(activation);
  golden.config.activation_function = activation;
  const Gpt2 model(golden.config);
  test::expect_training(model, golden.file, golden.file["activations"][activation], dtype, comm,
                           forward_of(model, golden));
}

inline void expect_bfloat16_near_float64(Communicator& comm) {
  const Golden golden(DType::bf16);
  const Gpt2 model(golden.config);
  test::expect_bfloat16_training(model, golden.file, golden.file["activations"]["gelu_new"], comm,
                                    forward_of(model, golden));
}

inline void expect_golden_on(const std::string& device, const std::string& activation, DType dtype) {
  test::on_rank(device, [&](Communicator& comm) { expect_golden(comm, activation, dtype); });
}

}  // namespace godwit::gpt2_golden
