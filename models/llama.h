// LLaMA (Touvron et al. 2023): a decoder with RMSNorm, rotary positions, SwiGLU and grouped-query attention. Also
// implements the architectures that differ only in flags: Mistral, Qwen2, and Mixtral, whose feed-forward layers are
// mixtures of experts. Names and order of parameters are those of HuggingFace's folders.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/causal_lm.h"
#include "models/llama_config.h"
#include "nn/layers.h"

namespace godwit {

// A network of type llama, mistral, qwen2 or mixtral.
class Llama : public CausalLM {
 public:
  explicit Llama(const LlamaConfig& config);  // weights are zero; throws for invalid settings
  ~Llama() override;

  static Sizes sizes_of(const LlamaConfig& config);      // throws for invalid settings
  const LlamaConfig& config() const { return config_; }  // sizes and settings
  Var forward(const Tensor& ids, const DropoutContext* dropout = nullptr) const override;
  Var forward(const Tensor& ids, KeyValueCache& cache) const override;
  // For mixtral: also computes the load-balancing loss of the routers, a scalar, unless `balance` is null.
  Var forward(const Tensor& ids, const DropoutContext* dropout, Var* balance) const;
  // For mixtral: adds router_aux_loss_coef times the load-balancing loss.
  Var training_loss(const Tensor& ids, const Tensor& labels, const DropoutContext* dropout) const override;

 private:
  const Var& output_weight() const override { return config_.tie_word_embeddings ? tokens_.weight() : head_; }
  void load(const std::string& path) const override;
  void save(const std::string& folder) const override;
  class Layer;
  const RotaryTable& rotations(int64_t positions) const;  // table of at least this many positions

  const LlamaConfig config_;
  nn::Embedding tokens_;
  std::vector<std::unique_ptr<Layer>> layers_;
  nn::RmsNorm norm_;
  Var head_;                                    // undefined if embeddings are tied
  mutable std::vector<RotaryTable> rotations_;  // of growing length; captured steps keep using earlier ones
};

// Creates a model with initial weights from config.seed. Matrices and embeddings are normal with standard deviation
// initializer_range. For matrices whose outputs are added to the residual stream, it is initializer_range / √(2 ·
// layers).
std::unique_ptr<Llama> make_llama(const LlamaConfig& config);

}  // namespace godwit
