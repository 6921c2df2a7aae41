// The configuration of train_gpt.
#pragma once
#include <string>

#include "apps/config/program.h"
#include "models/generate.h"
#include "models/make_causal_lm.h"

namespace godwit::apps {

struct GptDataConfig {
  std::string path;  // text, JSONL or token shards; empty: the packaged King James Bible
  // Text, JSONL or token shards for validation. Empty: shards named *val* or texts named valid in the folder, otherwise
  // the last valid_fraction of the tokens.
  std::string valid;
  // "characters", a folder or a file. Empty: the tokenizer of the initial weights or of the shards, otherwise
  // characters.
  std::string tokenizer;
  double valid_fraction = 0.1;  // fraction for validation if `valid` is empty and the folder has no validation files
  int64_t context = 128;        // number of tokens per block
};

struct GptGenerateConfig {
  std::string prompt;    // if not empty, the program continues this text instead of training
  int64_t tokens = 300;  // number of tokens of a continuation, or of the sample at an evaluation; 0: no sample
  SampleOptions sample{.temperature = 0.8};
};

// The sizes of a new network.
struct GptSizes {
  explicit GptSizes(const CausalLMConfig& config);  // takes the sizes from `config`
  void apply(CausalLMConfig* config) const;
  int64_t n_layer, n_head, n_embd;
  int64_t n_kv_head = 1, n_inner = 1;              // not for GPT-2
  double rope_theta = 10000;                       // not for GPT-2
  int64_t n_experts = 1, n_experts_per_token = 1;  // only for a mixture of experts
  double aux_loss = 0;
};

struct GptConfig : CommonConfig {
  GptConfig() {
    schedule.name = "cosine";
    schedule.warmup_fraction = 0.05;
    schedule.final_fraction = 0.1;
    clip.norm = 1;
    default_sharding = Sharding::automatic;
    set_exchange("dense");
    epochs = 3;
    batch = 2;
  }
  void check_together() const override;
  std::string automatic_network() const override { return "gpt2_nano"; }

  std::string model_name = "auto";                       // auto: from the initial weights, otherwise gpt2_nano
  CausalLMConfig model = gpt2_config("gpt2_nano");  // settings of a new network; load_gpt_data() completes them
  GptSizes sizes{model};                                 // sizes of a new network
  double dropout = 0;                                    // dropout probability; see set_training()
  std::string recompute = "false";                       // layers whose activations backward recomputes
  GptDataConfig data;
  GptGenerateConfig generate;
  int64_t evaluate_every = 0;  // steps between evaluations; 0: only at the end of every epoch

 protected:
  void describe(OptionList& list) override;
};

const Program& gpt_program();  // train_gpt

}  // namespace godwit::apps
