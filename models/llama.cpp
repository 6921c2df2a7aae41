#include "models/llama.h"

#include <bit>
#include <cmath>
#include <utility>

#include "autograd/ops/add.h"
#include "autograd/ops/attention/attention.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/rotary.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/swiglu.h"
#include "engine/check.h"
#include "engine/graph.h"
#include "models/dropout.h"
#include "models/mixture.h"
#include "nn/init.h"
#include "nn/recompute.h"

namespace godwit {
namespace {

class Attention : public nn::Module {
 public:
  Attention(const LlamaConfig& c, int64_t number)
      : config_(c),
        number_(number),
        q_(c.hidden_size, c.num_attention_heads * c.head_width(), c.dtype, c.attention_bias || c.model_type == "qwen2"),
        k_(c.hidden_size, c.kv_heads() * c.head_width(), c.dtype, c.attention_bias || c.model_type == "qwen2"),
        v_(c.hidden_size, c.kv_heads() * c.head_width(), c.dtype, c.attention_bias || c.model_type == "qwen2"),
        output_(c.num_attention_heads * c.head_width(), c.hidden_size, c.dtype, c.attention_bias) {
    add("q_proj", q_);
    add("k_proj", k_);
    add("v_proj", v_);
    add("o_proj", output_);
  }

  Var operator()(const Var& x, int64_t batch, const RotaryTable& rotations, const Dropouts& dropouts) const {
    const int64_t length = x.dim(0) / batch;
    AttentionOptions options = dropouts.attention(config_.attention_dropout, number_);
    options.causal = true;
    const Var q = heads(ops::rotary(q_(x), rotations, length), batch);
    const Var k = heads(ops::rotary(k_(x), rotations, length), batch);
    return out(ops::attention(q, k, heads(v_(x), batch), {}, options));
  }

  // One text that continues the tokens in the cache.
  Var operator()(const Var& x, const RotaryTable& rotations, KeyValueCache& cache) const {
    const int64_t rows = x.dim(0), past = cache.length();
    const Var q = ops::rotary(q_(x), rotations, rows, past), k = ops::rotary(k_(x), rotations, rows, past);
    const auto [keys, values] = cache.append(number_, k.value(), v_(x).value());
    return out(ops::attention(heads(q, 1), heads(Var(keys), 1), heads(Var(values), 1), {}, {.causal = true}));
  }

 private:
  Var heads(const Var& x, int64_t batch) const {
    const int64_t width = config_.head_width();
    return ops::reshape(x, {batch, x.dim(0) / batch, x.dim(1) / width, width});
  }
  Var out(const Var& y) const { return output_(ops::reshape(y, {y.dim(0) * y.dim(1), y.dim(2) * y.dim(3)})); }

  const LlamaConfig& config_;
  int64_t number_;
  nn::Linear q_, k_, v_, output_;
};

class FeedForward : public nn::Module {
 public:
  explicit FeedForward(const LlamaConfig& c)
      : gate_(c.hidden_size, c.intermediate_size, c.dtype, c.mlp_bias),
        up_(c.hidden_size, c.intermediate_size, c.dtype, c.mlp_bias),
        down_(c.intermediate_size, c.hidden_size, c.dtype, c.mlp_bias) {
    add("gate_proj", gate_);
    add("up_proj", up_);
    add("down_proj", down_);
  }
  Var operator()(const Var& x) const { return down_(ops::swiglu(gate_(x), up_(x))); }

 private:
  nn::Linear gate_, up_, down_;
};

}  // namespace

// Attention and a feed-forward layer or a mixture of experts. Each normalizes its input and adds its output to the
// input.
class Llama::Layer : public nn::Module {
 public:
  Layer(const LlamaConfig& c, int64_t number)
      : attention_(c, number),
        attention_norm_(c.hidden_size, c.rms_norm_eps, c.dtype),
        feed_forward_norm_(c.hidden_size, c.rms_norm_eps, c.dtype) {
    add("self_attn", attention_);
    if (c.has_experts()) add("block_sparse_moe", *(experts_ = std::make_unique<MixtureOfExperts>(c)));
    else add("mlp", *(feed_forward_ = std::make_unique<FeedForward>(c)));
    add("input_layernorm", attention_norm_);
    add("post_attention_layernorm", feed_forward_norm_);
  }

  // `arguments`: passed to Attention.
  template <class... Arguments>
  Var operator()(const Var& x, RoutedTokens* routed, Arguments&&... arguments) const {
    const Var y = ops::add(x, attention_(attention_norm_(x), std::forward<Arguments>(arguments)...));
    const Var z = feed_forward_norm_(y);
    return ops::add(y, experts_ ? (*experts_)(z, routed) : (*feed_forward_)(z));
  }

 private:
  Attention attention_;
  std::unique_ptr<FeedForward> feed_forward_;  // null in Mixtral
  std::unique_ptr<MixtureOfExperts> experts_;
  nn::RmsNorm attention_norm_, feed_forward_norm_;
};

CausalLM::Sizes Llama::sizes_of(const LlamaConfig& c) {
  check_llama_config(c);
  return {c.model_type,
          c.vocab_size,
          c.positions(),
          c.positions_field(),
          c.num_hidden_layers,
          c.kv_heads() * c.head_width(),
          c.dtype};
}

Llama::Llama(const LlamaConfig& config)
    : CausalLM(sizes_of(config)),
      config_(config),
      tokens_(config.vocab_size, config.hidden_size, config.dtype),
      norm_(config.hidden_size, config.rms_norm_eps, config.dtype) {
  add("model.embed_tokens", tokens_);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back(std::make_unique<Layer>(config_, i));
    add("model.layers." + std::to_string(i), *layers_.back());
  }
  add("model.norm", norm_);
  if (!config.tie_word_embeddings)
    head_ = add_parameter("lm_head.weight", Shape{config.vocab_size, config.hidden_size}, compute_dtype(config.dtype));
}

Llama::~Llama() = default;

const RotaryTable& Llama::rotations(int64_t positions) const {
  if (rotations_.empty() || rotations_.back().cos.dim(0) < positions) {
    // A failed capture would leave a table without values.
    check(!capturing(), sizes().name, ": a text of ", positions, " tokens needs a longer table of rotary positions ",
          "during CUDA graph capture; use the length as part of the key of CudaGraphCache::run()");
    const UsualPool usual;  // replays overwrite tensors of the cache's pool
    const auto grown = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(positions)));
    rotations_.push_back(rotary_table(config_.rope, config_.head_width(), std::min(grown, sizes().positions),
                                      compute_dtype(config_.dtype)));
  }
  return rotations_.back();
}

Var Llama::forward(const Tensor& ids, const DropoutContext* dropout) const { return forward(ids, dropout, nullptr); }

Var Llama::forward(const Tensor& ids, const DropoutContext* dropout, Var* balance) const {
  check_ids(ids, 0);
  const Dropouts dropouts(dropout);
  const RotaryTable table = rotations(ids.dim(1));
  RoutedTokens routed;
  Var x = ops::cast(tokens_(ids.view({ids.numel()})), config_.dtype);
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const Layer& layer = *layers_[static_cast<size_t>(i)];
    const auto apply = [&layer, batch = ids.dim(0), table, dropouts](const Var& y, RoutedTokens* to = nullptr) {
      return layer(y, to, batch, table, dropouts);
    };
    x = i < config_.recompute ? nn::recompute(layer, x, apply) : apply(x, balance ? &routed : nullptr);
  }
  if (balance) *balance = ops::load_balancing_loss(routed.probabilities, routed.routings);
  return norm_(x);
}

Var Llama::forward(const Tensor& ids, KeyValueCache& cache) const {
  check_continuation(ids);
  check_ids(ids, cache.length());
  const RotaryTable& table = rotations(cache.length() + ids.dim(1));
  Var x = ops::cast(tokens_(ids.view({ids.numel()})), config_.dtype);
  for (const auto& layer : layers_) x = (*layer)(x, nullptr, table, cache);
  cache.advance(ids.dim(1));
  return norm_(x);
}

Var Llama::training_loss(const Tensor& ids, const Tensor& labels, const DropoutContext* dropout) const {
  if (!config_.has_experts()) return CausalLM::training_loss(ids, labels, dropout);
  Var balance;
  const Var hidden = forward(ids, dropout, &balance);
  return ops::add(loss(hidden, labels), ops::scale(balance, config_.router_aux_loss_coef));
}

std::unique_ptr<Llama> make_llama(const LlamaConfig& config) {
  auto model = std::make_unique<Llama>(config);
  nn::initialize_normal(*model, config.seed, config.initializer_range);
  const double of_residuals = config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
  for (const Parameter& p : model->parameters())
    if (p.name.ends_with("o_proj.weight") || p.name.ends_with("down_proj.weight") || p.name.ends_with("w2.weight"))
      nn::fill_normal(p, config.seed, of_residuals);
  return model;
}

}  // namespace godwit
