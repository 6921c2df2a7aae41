// Gpt2Config: the sizes and settings of a GPT-2, named as in HuggingFace's config.json.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/dtype.h"

namespace godwit {

// Sizes, dropout and initialization of a GPT-2.
struct Gpt2Config {
  int64_t vocab_size = 50257, n_positions = 1024;                // rows of the tables of tokens and positions
  int64_t n_embd = 768, n_layer = 12, n_head = 12;               // n_embd must be a multiple of n_head
  std::optional<int64_t> n_inner = {};                           // width of the feed-forward layers; none: 4 · n_embd
  std::string activation_function = "gelu_new";                  // tanh form; gelu (erf form), gelu_pytorch_tanh, relu
  double embd_pdrop = 0.1, attn_pdrop = 0.1, resid_pdrop = 0.1;  // dropout: embeddings, attention, residual outputs
  double initializer_range = 0.02;                               // standard deviation of the initial weights
  double layer_norm_epsilon = 1e-5;                              // added to variances
  std::optional<int64_t> bos_token_id = {};  // beginning of a text, for transformers; none: written as null
  std::optional<int64_t> eos_token_id = {};  // end of a text; none: written as null
  std::optional<int64_t> pad_token_id = {};  // padding, for transformers; none: not written

  DType dtype = DType::f32;  // or f64; bf16: activations of the layers, the rest stays float32
  uint64_t seed = 1;         // of the initial parameters
  // The backward pass computes the activations of the first `recompute` layers again: less memory, the same gradients.
  int64_t recompute = 0;

  int64_t inner() const { return n_inner.value_or(4 * n_embd); }  // width of the feed-forward layers
};

// gpt2_nano, gpt2_micro (nanoGPT's character-level networks), gpt2, gpt2_medium, gpt2_large, gpt2_xl.
std::vector<std::string> gpt2_names();
Gpt2Config gpt2_config(const std::string& name);  // throws for an unknown name, suggesting the nearest

// Throws if the settings are invalid, naming the field and its value.
void check_gpt2_config(const Gpt2Config& config);

uint64_t hash(const Gpt2Config& config);  // of all fields except seed and recompute

// Reads a config.json, or the one in a folder. Missing fields get HuggingFace's defaults. Throws an Error naming file,
// field and value if a field is malformed, out of range, or asks for another architecture.
Gpt2Config read_gpt2_config(const std::string& path);

// Writes a config.json for transformers' GPT2LMHeadModel: the whole file or nothing.
void write_gpt2_config(const std::string& path, const Gpt2Config& config);

}  // namespace godwit
