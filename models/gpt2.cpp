#include "models/gpt2.h"

#include <cmath>
#include <utility>

#include "autograd/ops/add.h"
#include "autograd/ops/attention/self_attention.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/relu.h"
#include "autograd/ops/reshape.h"
#include "nn/init.h"
#include "nn/recompute.h"

namespace godwit {
namespace {

constexpr FileLayout kConv1D = FileLayout::transposed;
// Dropout sites: 0 for the embeddings, 1 + 3·layer + 0…2 in a layer.
constexpr int64_t kSitesPerLayer = 3;

Var gpt2_activation(const std::string& name, const Var& x) {
  return name == "relu" ? ops::relu(x) : ops::gelu(x, /*tanh=*/name != "gelu");
}

}  // namespace

// Self-attention and a two-layer MLP per token. Each normalizes its input and adds its output to the input.
class Gpt2::Layer : public nn::Module {
 public:
  Layer(const Gpt2Config& c, int64_t number)
      : config_(c),
        number_(number),
        attention_norm_(c.n_embd, c.layer_norm_epsilon, c.dtype),
        qkv_(c.n_embd, 3 * c.n_embd, c.dtype, /*bias=*/true, kConv1D),
        attended_(c.n_embd, c.n_embd, c.dtype, /*bias=*/true, kConv1D),
        mlp_norm_(c.n_embd, c.layer_norm_epsilon, c.dtype),
        inner_(c.n_embd, c.inner(), c.dtype, /*bias=*/true, kConv1D),
        output_(c.inner(), c.n_embd, c.dtype, /*bias=*/true, kConv1D) {
    add("ln_1", attention_norm_);
    add("attn.c_attn", qkv_);
    add("attn.c_proj", attended_);
    add("ln_2", mlp_norm_);
    add("mlp.c_fc", inner_);
    add("mlp.c_proj", output_);
  }

  Var operator()(const Var& x, int64_t batch, const Dropouts& dropouts) const {
    AttentionOptions options = dropouts.attention(config_.attn_pdrop, site());
    options.causal = true;
    const Var y = ops::self_attention(qkv_(attention_norm_(x)), batch, config_.n_head, options);
    return mlp(ops::add(x, dropouts(attended_(y), config_.resid_pdrop, site() + 1)), dropouts);
  }

  // One text that continues the tokens in the cache.
  Var operator()(const Var& x, KeyValueCache& cache) const {
    const Tensor qkv = qkv_(attention_norm_(x)).value();
    const int64_t rows = x.dim(0), width = config_.n_embd;
    const auto part = [&] { return Tensor({rows, width}, qkv.dtype(), qkv.device()); };
    const Tensor q = part(), k = part(), v = part();
    on_device(qkv, [&](auto device) { split_qkv(device, qkv, q, k, v); });
    const auto [keys, values] = cache.append(number_, k, v);
    const auto heads = [&](const Tensor& t) {
      return Var(t.view({1, t.dim(0), config_.n_head, width / config_.n_head}));
    };
    const Var y = ops::attention(heads(q), heads(keys), heads(values), {}, {.causal = true});
    return mlp(ops::add(x, attended_(ops::reshape(y, {rows, width}))), Dropouts(nullptr));
  }

 private:
  int64_t site() const { return 1 + kSitesPerLayer * number_; }
  Var mlp(const Var& x, const Dropouts& dropouts) const {
    const Var y = output_(gpt2_activation(config_.activation_function, inner_(mlp_norm_(x))));
    return ops::add(x, dropouts(y, config_.resid_pdrop, site() + 2));
  }

  const Gpt2Config& config_;  // owned by the Gpt2
  int64_t number_;
  nn::LayerNorm attention_norm_;
  nn::Linear qkv_, attended_;
  nn::LayerNorm mlp_norm_;
  nn::Linear inner_, output_;
};

CausalLM::Sizes Gpt2::sizes_of(const Gpt2Config& c) {
  check_gpt2_config(c);
  return {"gpt2", c.vocab_size, c.n_positions, "n_positions", c.n_layer, c.n_embd, c.dtype};
}

Gpt2::Gpt2(const Gpt2Config& config)
    : CausalLM(sizes_of(config)),
      config_(config),
      tokens_(config.vocab_size, config.n_embd, config.dtype),
      positions_(config.n_positions, config.n_embd, config.dtype),
      norm_(config.n_embd, config.layer_norm_epsilon, config.dtype) {
  add("transformer.wte", tokens_);
  add("transformer.wpe", positions_);
  for (int64_t i = 0; i < config.n_layer; ++i) {
    layers_.push_back(std::make_unique<Layer>(config_, i));
    add("transformer.h." + std::to_string(i), *layers_.back());
  }
  add("transformer.ln_f", norm_);
}

Gpt2::~Gpt2() = default;

// Computes row indices on the CPU, where loaders leave the ids.
Var Gpt2::embed(const Tensor& ids, int64_t first_position) const {
  check_ids(ids, first_position);
  Tensor positions({ids.numel()}, DType::i32, kCpu);
  for (int64_t i = 0; i < positions.numel(); ++i)
    positions.data<int32_t>()[i] = static_cast<int32_t>(first_position + i % ids.dim(1));
  return ops::add(tokens_(ids.view({ids.numel()})), positions_(positions));
}

Var Gpt2::forward(const Tensor& ids, const DropoutContext* dropout) const {
  const Dropouts dropouts(dropout);
  Var x = ops::cast(dropouts(embed(ids, 0), config_.embd_pdrop, 0), config_.dtype);
  for (int64_t i = 0; i < config_.n_layer; ++i) {
    const Layer& layer = *layers_[static_cast<size_t>(i)];
    const auto apply = [&layer, batch = ids.dim(0), dropouts](const Var& y) { return layer(y, batch, dropouts); };
    x = i < config_.recompute ? nn::recompute(layer, x, apply) : apply(x);
  }
  return norm_(x);
}

Var Gpt2::forward(const Tensor& ids, KeyValueCache& cache) const {
  check_continuation(ids);
  Var x = ops::cast(embed(ids, cache.length()), config_.dtype);
  for (const auto& layer : layers_) x = (*layer)(x, cache);
  cache.advance(ids.dim(1));
  return norm_(x);
}

std::unique_ptr<Gpt2> make_gpt2(const Gpt2Config& config) {
  auto model = std::make_unique<Gpt2>(config);
  nn::initialize_normal(*model, config.seed, config.initializer_range);
  const double of_residuals = config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.n_layer));
  for (const Parameter& p : model->parameters())
    if (p.name.ends_with("c_proj.weight")) nn::fill_normal(p, config.seed, of_residuals);
  return model;
}

}  // namespace godwit
