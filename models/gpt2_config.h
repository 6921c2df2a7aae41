// Gpt2Config: the sizes and settings of a GPT-2 model, with the names of HuggingFace's config.json.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/dtype.h"

namespace godwit {

// Sizes, dropout and initialization of a GPT-2 model.
struct Gpt2Config {
  int64_t vocab_size = 50257, n_positions = 1024;                // number of tokens and of positions
  int64_t n_embd = 768, n_layer = 12, n_head = 12;               // n_embd must be a multiple of n_head
  std::optional<int64_t> n_inner = {};                           // width of the feed-forward layers; unset: 4 · n_embd
  std::string activation_function = "gelu_new";                  // tanh form; gelu (erf form), gelu_pytorch_tanh, relu
  double embd_pdrop = 0.1, attn_pdrop = 0.1, resid_pdrop = 0.1;  // dropout: embeddings, attention, residual outputs
  double initializer_range = 0.02;                               // standard deviation of the initial weights
  double layer_norm_epsilon = 1e-5;                              // added to variances
  std::optional<int64_t> bos_token_id = {};  // beginning of a text, for transformers; unset: written as null
  std::optional<int64_t> eos_token_id = {};  // end of a text; unset: written as null
  std::optional<int64_t> pad_token_id = {};  // padding, for transformers; unset: not written

  DType dtype = DType::f32;  // or f64; bf16: activations of the layers; the rest is float32
  uint64_t seed = 1;         // seed of the initial parameters
  // Number of first layers whose activations the backward pass recomputes. This saves memory and leaves gradients
  // unchanged.
  int64_t recompute = 0;

  int64_t inner() const { return n_inner.value_or(4 * n_embd); }  // width of the feed-forward layers
};

// gpt2_nano and gpt2_micro (nanoGPT's character-level networks), gpt2, gpt2_medium, gpt2_large, gpt2_xl.
std::vector<std::string> gpt2_names();
Gpt2Config gpt2_config(const std::string& name);  // throws for an unknown name; suggests the nearest

// Throws for invalid settings. The Error names the field and its value.
void check_gpt2_config(const Gpt2Config& config);

uint64_t hash(const Gpt2Config& config);  // hash of all fields except seed and recompute

// Reads a config.json, or the config.json in a folder. Missing fields get HuggingFace's defaults. Throws an Error that
// names the file, field and value if a field is malformed or out of range, or requires another architecture.
Gpt2Config read_gpt2_config(const std::string& path);

// Writes a config.json for transformers' GPT2LMHeadModel: either the whole file or nothing.
void write_gpt2_config(const std::string& path, const Gpt2Config& config);

}  // namespace godwit
