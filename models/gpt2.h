// GPT-2 (Radford et al. 2019): a decoder with learned positions and pre-layer norm. Names and order of parameters are
// those of HuggingFace's GPT2LMHeadModel. Its Conv1D weights [in, out] are stored here as [out, in].
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/dropout.h"
#include "models/gpt2_config.h"
#include "nn/layers.h"

namespace godwit {

// Keys and values of the tokens that a network has read, for generation: one text of at most `capacity` tokens.
class KeyValueCache {
 public:
  // `width`: of all heads together. Throws unless all sizes are positive.
  KeyValueCache(int64_t layers, int64_t capacity, int64_t width, DType dtype);

  int64_t length() const { return length_; }      // tokens so far
  int64_t capacity() const { return capacity_; }  // limit of length()
  // Appends rows [new, width] of a layer. Returns all of its keys and values so far, [length() + new, width].
  std::pair<Tensor, Tensor> append(int64_t layer, const Tensor& keys, const Tensor& values);
  void advance(int64_t tokens) { length_ += tokens; }  // after all layers have appended so many rows

 private:
  int64_t capacity_, length_ = 0;
  std::vector<Tensor> keys_, values_;  // by layer, [capacity, width]
};

// The output layer shares the weight of the token embedding.
class Gpt2 : public nn::Module {
 public:
  explicit Gpt2(const Gpt2Config& config);  // weights are zero; throws for invalid settings
  ~Gpt2() override;

  const Gpt2Config& config() const { return config_; }  // sizes and settings
  // ids: int32 [batch, length] on the CPU -> hidden states after the last layer norm, [batch·length, n_embd] of
  // config.dtype. Throws if an id is outside of the vocabulary or if length exceeds n_positions. `run`: null: no
  // dropout.
  Var forward(const Tensor& ids, const DropoutContext* run = nullptr) const;
  // Hidden states of ids [1, new], which continue the tokens in the cache. Requires gradients to be disabled.
  Var forward(const Tensor& ids, KeyValueCache& cache) const;
  Var logits(const Var& hidden) const;  // [n, n_embd] -> [n, vocab_size], not bfloat16
  // Mean cross-entropy of the logits with labels int32 [n], as a scalar. Rows with label `ignore` do not count. Large
  // logits are computed in parts: ops::linear_cross_entropy().
  Var loss(const Var& hidden, const Tensor& labels, std::optional<int32_t> ignore = std::nullopt) const;
  KeyValueCache make_cache(int64_t capacity) const;  // an empty cache for so many tokens, at most n_positions

 private:
  class Layer;
  Var embed(const Tensor& ids, int64_t first_position) const;

  const Gpt2Config config_;
  nn::Embedding tokens_, positions_;
  std::vector<std::unique_ptr<Layer>> layers_;
  nn::LayerNorm norm_;
};

// Creates a GPT-2 with initial weights from config.seed: matrices and embeddings are normal with standard deviation
// initializer_range, the outputs that are added to the residual stream with initializer_range / √(2 · n_layer).
std::unique_ptr<Gpt2> make_gpt2(const Gpt2Config& config);

// Loads the weights of a HuggingFace folder or safetensors file into the model's memory. Names may lack "transformer.".
// Throws an Error naming the tensors that are missing, unexpected, or of another shape or type; the model is then
// unchanged.
void load_pretrained(const std::string& path, const Gpt2& model);

// Writes a folder for transformers' from_pretrained: config.json and model.safetensors. The folder is created if it
// does not exist. Each file is written whole or not at all.
void save_pretrained(const std::string& folder, const Gpt2& model);

}  // namespace godwit
