// LlamaConfig: sizes and settings of LLaMA and of the architectures that differ only in flags: Mistral, Qwen2, Mixtral.
// Fields have the names of HuggingFace's config.json.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/rotary_scaling.h"

namespace godwit {

// Sizes, rotary positions and initialization of a model of type llama, mistral, qwen2 or mixtral.
struct LlamaConfig {
  std::string model_type = "llama";                            // or mistral, qwen2, mixtral
  int64_t vocab_size = 32000, max_position_embeddings = 2048;  // number of tokens; maximum length of a text
  int64_t hidden_size = 4096, intermediate_size = 11008;  // width of the hidden states and of the feed-forward layers
  int64_t num_hidden_layers = 32, num_attention_heads = 32;  // number of layers; number of query heads
  std::optional<int64_t> num_key_value_heads = {};           // divides num_attention_heads; unset: equal
  std::optional<int64_t> head_dim = {};                      // unset: hidden_size / num_attention_heads
  RotaryScaling rope = {};                                   // rotary positions
  std::optional<int64_t> sliding_window = {};                // mistral, qwen2, mixtral: longer texts are rejected
  int64_t max_window_layers = 28;                            // qwen2: stored only for transformers
  bool tie_word_embeddings = false;                        // the output layer shares the token embedding's weight
  bool attention_bias = false;                             // q, k, v and o have biases; qwen2: q, k and v always do
  bool mlp_bias = false;                                   // whether the feed-forward layers have biases
  double rms_norm_eps = 1e-6;                              // added to mean squares
  double attention_dropout = 0;                            // dropout probability of attention probabilities
  double initializer_range = 0.02;                         // standard deviation of the initial weights
  int64_t num_local_experts = 0, num_experts_per_tok = 2;  // mixtral: experts per layer; experts per token
  double router_aux_loss_coef = 0.001;                     // mixtral: weight of the load-balancing loss in training
  std::optional<int64_t> bos_token_id = {};  // beginning of a text, for transformers; unset: written as null
  std::vector<int64_t> eos_token_id = {};    // end of a text
  std::optional<int64_t> pad_token_id = {};  // padding, for transformers; unset: not written

  DType dtype = DType::f32;  // or f64; bf16: activations of the layers; the rest is float32
  uint64_t seed = 1;         // seed of the initial parameters
  // Number of first layers whose activations the backward pass recomputes. Not supported for mixtral.
  int64_t recompute = 0;

  // num_key_value_heads, or its default.
  int64_t kv_heads() const { return num_key_value_heads.value_or(num_attention_heads); }
  // head_dim, or its default.
  int64_t head_width() const { return head_dim.value_or(hidden_size / num_attention_heads); }
  bool has_experts() const { return model_type == "mixtral"; }  // whether feed-forward layers are mixtures of experts
  int64_t positions() const;            // length limit of texts: max_position_embeddings, or a shorter sliding window
  const char* positions_field() const;  // the field that determines positions()
};

// llama_nano and llama_micro (the sizes of gpt2_nano and gpt2_micro), llama3_1b, llama3_8b, mistral_7b, qwen2_0_5b,
// mixtral_nano, mixtral_8x7b.
std::vector<std::string> llama_names();
LlamaConfig llama_config(const std::string& name);  // throws for an unknown name; suggests the nearest

std::vector<std::string> llama_types();  // supported values of model_type

// Throws for invalid settings. The Error names the field and its value.
void check_llama_config(const LlamaConfig& config);

uint64_t hash(const LlamaConfig& config);  // hash of all fields except seed and recompute

// Reads a config.json, or the config.json in a folder. Rotary positions may have the format of transformers 5
// (rope_parameters) or of earlier versions (rope_theta, rope_scaling). Missing fields get transformers' defaults.
// Throws an Error that names the file, field and value if a field is malformed or out of range, or requires another
// architecture.
LlamaConfig read_llama_config(const std::string& path);

// Writes a config.json for transformers: either the whole file or nothing. Rotary positions are written in both
// formats.
void write_llama_config(const std::string& path, const LlamaConfig& config);

}  // namespace godwit
