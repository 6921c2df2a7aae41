// CausalLM: a decoder that predicts the next token at each position, and the cache for generation.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/dropout.h"
#include "nn/module.h"

namespace godwit {

// Keys and values of the tokens that a network has read, for generation of one text with at most `capacity` tokens.
// Movable, not copyable.
class KeyValueCache {
 public:
  // `width`: total width of the key heads. Throws unless all sizes are positive.
  KeyValueCache(int64_t layers, int64_t capacity, int64_t width, DType dtype);
  KeyValueCache(KeyValueCache&&) = default;
  KeyValueCache& operator=(KeyValueCache&&) = default;

  int64_t length() const { return length_; }      // number of tokens so far
  int64_t capacity() const { return capacity_; }  // maximum of length()
  // Appends rows [new, width] of a layer. Returns all keys and values of the layer so far, [length() + new, width].
  std::pair<Tensor, Tensor> append(int64_t layer, const Tensor& keys, const Tensor& values);
  void advance(int64_t tokens) { length_ += tokens; }  // call after all layers have appended this many rows

 private:
  int64_t capacity_, length_ = 0;
  std::vector<Tensor> keys_, values_;  // by layer, [capacity, width]
};

// The interface of decoders for programs and for generate().
class CausalLM : public nn::Module {
 public:
  // Sizes of a model.
  struct Sizes {
    std::string name;             // name of the model, for messages
    int64_t vocab_size;           // number of outputs per position
    int64_t positions;            // maximum length of a text
    const char* positions_field;  // field of config.json that determines `positions`
    int64_t layers, key_width;    // number of layers; number of key columns per layer
    DType dtype;                  // type of the layers' activations
  };

  const Sizes& sizes() const { return sizes_; }  // the model's sizes
  // ids: int32 [batch, length] on the CPU. Returns the hidden states after the last norm, [batch·length, width], of the
  // layers' type. Throws if an id is outside the vocabulary or length exceeds the positions. Without `dropout`, nothing
  // is dropped.
  virtual Var forward(const Tensor& ids, const DropoutContext* dropout = nullptr) const = 0;
  // Hidden states of ids [1, new], which continue the tokens in the cache. Gradients must be disabled.
  virtual Var forward(const Tensor& ids, KeyValueCache& cache) const = 0;
  Var logits(const Var& hidden) const;  // [n, width] -> [n, vocab_size] of the parameters' type
  // Mean cross-entropy of the logits with labels int32 [n], as a scalar. Rows with label `ignore` are not counted.
  // Large logits are computed in parts: ops::linear_cross_entropy().
  Var loss(const Var& hidden, const Tensor& labels, std::optional<int32_t> ignore = std::nullopt) const;
  // The loss that training minimizes: loss() of forward(ids, dropout), plus terms that a model may add.
  virtual Var training_loss(const Tensor& ids, const Tensor& labels, const DropoutContext* dropout) const;
  KeyValueCache make_cache(int64_t capacity) const;  // an empty cache; throws if `capacity` exceeds the positions

 protected:
  explicit CausalLM(const Sizes& sizes) : sizes_(sizes) {}  // for derived classes
  // Throws unless ids are valid after `first` earlier tokens. Each replay of a CUDA graph repeats the check.
  void check_ids(const Tensor& ids, int64_t first) const;
  // Throws unless gradients are disabled and ids are one text, as a key-value cache requires.
  void check_continuation(const Tensor& ids) const;

 private:
  virtual const Var& output_weight() const = 0;  // [vocab_size, width]
  virtual void load(const std::string& path) const = 0;
  virtual void save(const std::string& folder) const = 0;

  Sizes sizes_;
  friend void load_pretrained(const std::string& path, const CausalLM& model);
  friend void save_pretrained(const std::string& folder, const CausalLM& model);
};

// Loads the weights of a HuggingFace folder or safetensors file into the model's memory. Names may lack the prefix of
// the whole network ("transformer.", "model."). If tensors are missing, unexpected, or of another shape or type, throws
// an Error that names them; the model is then unchanged. Another Error names a tensor with an infinite value or NaN.
void load_pretrained(const std::string& path, const CausalLM& model);

// Writes a folder for transformers' from_pretrained: config.json and model.safetensors. The folder is created if it
// does not exist. Each file is written completely or not at all.
void save_pretrained(const std::string& folder, const CausalLM& model);

}  // namespace godwit
