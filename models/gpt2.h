// GPT-2 (Radford et al. 2019): a decoder with learned positions and pre-layer norm. Names and order of parameters are
// those of HuggingFace's GPT2LMHeadModel. Its Conv1D weights [in, out] are stored as [out, in].
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/causal_lm.h"
#include "models/dropout.h"
#include "models/gpt2_config.h"
#include "nn/layers.h"

namespace godwit {

// The output layer shares the weight of the token embedding.
class Gpt2 : public CausalLM {
 public:
  explicit Gpt2(const Gpt2Config& config);  // weights are zero; throws for invalid settings
  ~Gpt2() override;

  static Sizes sizes_of(const Gpt2Config& config);      // throws for invalid settings
  const Gpt2Config& config() const { return config_; }  // sizes and settings
  Var forward(const Tensor& ids, const DropoutContext* dropout = nullptr) const override;
  Var forward(const Tensor& ids, KeyValueCache& cache) const override;

 private:
  const Var& output_weight() const override { return tokens_.weight(); }
  void load(const std::string& path) const override;
  void save(const std::string& folder) const override;
  class Layer;
  Var embed(const Tensor& ids, int64_t first_position) const;

  const Gpt2Config config_;
  nn::Embedding tokens_, positions_;
  std::vector<std::unique_ptr<Layer>> layers_;
  nn::LayerNorm norm_;
};

// Creates a GPT-2 with initial weights from config.seed. Matrices and embeddings are normal with standard deviation
// initializer_range. For matrices whose outputs are added to the residual stream, it is initializer_range / √(2 ·
// n_layer).
std::unique_ptr<Gpt2> make_gpt2(const Gpt2Config& config);

}  // namespace godwit
