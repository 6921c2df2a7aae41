// Compares small LLaMA models and related models with HuggingFace transformers: logits, every parameter's gradient, ten
// steps of AdamW.
#pragma once
#include <fstream>
#include <string>

#include "autograd/ops/add.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "models/llama.h"
#include "tests/models/transformer_golden.h"
#include "tests/support.h"

namespace godwit::llama_golden {

using nlohmann::json;
using test::table;

// The inputs of make_llama_golden.py. The configuration is read in the same way as transformers' config.json.
struct Golden {
  json file = test::read_golden("llama.json"), expected;
  int64_t batch = file["batch"], length = file["length"];
  LlamaConfig config;
  Tensor ids, labels;

  Golden(const std::string& name, DType dtype) : expected(file["cases"][name]) {
    const TempFolder folder;
    std::ofstream(folder / "config.json") << expected["config"];
    config = read_llama_config(folder.str());
    config.dtype = dtype;
    ids = table("ids", batch * length, config.vocab_size).view({batch, length});
    labels = table("labels", batch * length, config.vocab_size);
  }
};

inline test::Forward forward_of(const Llama& model, const Golden& golden) {
  return [&](test::Outputs* outputs) {
    Var balance;
    const bool experts = golden.config.has_experts();
    const Var logits = model.logits(model.forward(golden.ids, nullptr, experts ? &balance : nullptr));
    const Var loss = ops::softmax_cross_entropy(logits, golden.labels);
    if (outputs) *outputs = {{"logits", logits.value()}};
    if (!experts) return loss;
    if (outputs) outputs->emplace_back("aux_loss", balance.value());
    return ops::add(loss, ops::scale(balance, golden.config.router_aux_loss_coef));
  };
}

inline void expect_golden(Communicator& comm, const std::string& name, DType dtype) {
  SCOPED_TRACE(name);
  const Golden golden(name, dtype);
  const Llama model(golden.config);
  test::expect_training(model, golden.file, golden.expected, dtype, comm, forward_of(model, golden));
}

inline void expect_bfloat16_near_float64(Communicator& comm) {
  const Golden golden("llama", DType::bf16);
  const Llama model(golden.config);
  test::expect_bfloat16_training(model, golden.file, golden.expected, comm, forward_of(model, golden));
}

inline void expect_golden_on(const std::string& device, const std::string& name, DType dtype) {
  test::on_rank(device, [&](Communicator& comm) { expect_golden(comm, name, dtype); });
}

}  // namespace godwit::llama_golden
