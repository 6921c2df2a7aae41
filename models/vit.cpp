#include "models/vit.h"

#include <cmath>
#include <utility>

#include "autograd/ops/add.h"
#include "autograd/ops/attention/self_attention.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/prepend_token.h"
#include "autograd/ops/reshape.h"
#include "models/named_configs.h"
#include "nn/init.h"

namespace godwit {
namespace {

constexpr double kEps = 1e-6;        // of the layer norms
constexpr int64_t kSitesOfBlock = 4;  // dropout sites: 0 for the embedding, then 1 + 4·block + 0…3

const NamedConfigs<VitConfig>& vit_table() {
  static const NamedConfigs<VitConfig> rows{
      {"vit_tiny", {.hidden_dim = 192, .heads = 3, .mlp_dim = 768}},
      {"vit_small", {.hidden_dim = 384, .heads = 6, .mlp_dim = 1536}},
      {"vit_b_16", {}},
  };
  return rows;
}

const VitConfig& checked(const VitConfig& config) {
  check(config.hidden_dim > 0 && config.layers > 0 && config.heads > 0 && config.mlp_dim > 0,
        "vit: hidden_dim, layers, heads and mlp_dim must be positive, got ", config.hidden_dim, ", ", config.layers,
        ", ", config.heads, ", ", config.mlp_dim);
  check(config.hidden_dim % config.heads == 0, "vit: hidden_dim ", config.hidden_dim, " does not divide into ",
        config.heads, " heads");
  check(config.patch_size > 0 && config.height > 0 && config.width > 0 && config.height % config.patch_size == 0 &&
            config.width % config.patch_size == 0,
        "vit: images of ", config.height, "×", config.width, " do not divide into patches of ", config.patch_size, "×",
        config.patch_size, "; choose a patch_size that divides height and width");
  for (const auto& [name, p] : {std::pair{"dropout", config.dropout}, {"attention_dropout", config.attention_dropout}})
    check(p >= 0 && p < 1, "vit: ", name, " must be in [0, 1), got ", p);
  check(config.in_channels > 0, "vit: in_channels must be positive, got ", config.in_channels);
  check(config.num_classes > 0, "vit: num_classes must be positive, got ", config.num_classes);
  check(config.dtype == DType::f32 || config.dtype == DType::bf16 || config.dtype == DType::f64,
        "vit: dtype must be f32, bf16 or f64, got ", config.dtype);
  return config;
}

// Number of tokens of an image: patches and the class token.
int64_t tokens(const VitConfig& c) { return (c.height / c.patch_size) * (c.width / c.patch_size) + 1; }

// PyTorch's MultiheadAttention with queries, keys and values of the same tokens.
class SelfAttention : public nn::Module {
 public:
  explicit SelfAttention(const VitConfig& c) : heads_(c.heads), out_(c.hidden_dim, c.hidden_dim, c.dtype) {
    const DType type = compute_dtype(c.dtype);
    weight_ = add_parameter("in_proj_weight", Shape{3 * c.hidden_dim, c.hidden_dim}, type);
    bias_ = add_parameter("in_proj_bias", Shape{3 * c.hidden_dim}, type, /*decay=*/false);
    add("out_proj", out_);
  }
  // x [batch · tokens, hidden_dim]
  Var operator()(const Var& x, int64_t batch, const AttentionOptions& options) const {
    return out_(ops::self_attention(ops::linear(x, weight_, bias_), batch, heads_, options));
  }

 private:
  int64_t heads_;
  Var weight_, bias_;
  nn::Linear out_;
};

bool replace_prefix(std::string& name, const std::string& from, const std::string& to) {
  if (!name.starts_with(from)) return false;
  name.replace(0, from.size(), to);
  return true;
}

}  // namespace

// x + attention(norm(x)), then x + mlp(norm(x)).
class Vit::Block : public nn::Module {
 public:
  Block(const VitConfig& c, int64_t number)
      : config_(c),
        site_(1 + kSitesOfBlock * number),
        ln_1_(c.hidden_dim, kEps, c.dtype),
        attention_(c),
        ln_2_(c.hidden_dim, kEps, c.dtype),
        first_(c.hidden_dim, c.mlp_dim, c.dtype),
        second_(c.mlp_dim, c.hidden_dim, c.dtype) {
    add("ln_1", ln_1_);
    add("self_attention", attention_);
    add("ln_2", ln_2_);
    add("mlp.0", first_);
    add("mlp.3", second_);
  }
  Var operator()(const Var& x, int64_t batch, const Dropouts& dropouts) const {
    const double p = config_.dropout;
    const auto options = dropouts.attention(config_.attention_dropout, site_);
    const Var y = ops::add(x, dropouts(attention_(ln_1_(x), batch, options), p, site_ + 1));
    const Var hidden = dropouts(ops::gelu(first_(ln_2_(y))), p, site_ + 2);
    return ops::add(y, dropouts(second_(hidden), p, site_ + 3));
  }

 private:
  const VitConfig& config_;  // owned by the Vit
  int64_t site_;
  nn::LayerNorm ln_1_;
  SelfAttention attention_;
  nn::LayerNorm ln_2_;
  nn::Linear first_, second_;
};

class Vit::Encoder : public nn::Module {
 public:
  explicit Encoder(const VitConfig& c) : ln_(c.hidden_dim, kEps, c.dtype) {
    const Shape shape{1, tokens(c), c.hidden_dim};
    positions_ = add_parameter("pos_embedding", shape, compute_dtype(c.dtype), /*decay=*/false);
    for (int64_t i = 0; i < c.layers; ++i) {
      blocks_.push_back(std::make_unique<Block>(c, i));
      add("layers.encoder_layer_" + std::to_string(i), *blocks_.back());
    }
    add("ln", ln_);
  }
  const Var& positions() const { return positions_; }
  // x [batch · tokens, hidden_dim] -> the normalized class tokens [batch, hidden_dim]
  Var operator()(Var x, int64_t batch, const Dropouts& dropouts) const {
    for (const auto& block : blocks_) x = (*block)(x, batch, dropouts);
    Tensor first({batch}, DType::i32, kCpu);
    for (int64_t i = 0; i < batch; ++i) first.data<int32_t>()[i] = static_cast<int32_t>(i * x.dim(0) / batch);
    return ln_(ops::embedding(first, x));
  }

 private:
  Var positions_;
  std::vector<std::unique_ptr<Block>> blocks_;
  nn::LayerNorm ln_;
};

Vit::Vit(const VitConfig& config)
    : config_(checked(config)),
      conv_proj_(config.in_channels, config.hidden_dim, config.patch_size,
                 {.stride = static_cast<int>(config.patch_size)}, config.dtype, /*bias=*/true),
      head_(config.hidden_dim, config.num_classes, compute_dtype(config.dtype)) {
  const Tensor token = Tensor::zeros({1, 1, config.hidden_dim}, compute_dtype(config.dtype));
  class_token_ = add_parameter("class_token", token, /*decay=*/false);
  add("conv_proj", conv_proj_);
  encoder_ = std::make_unique<Encoder>(config_);
  add("encoder", *encoder_);
  add("heads.head", head_);
}

Vit::~Vit() = default;

Var Vit::forward(const Var& x, const DropoutContext* dropout) const {
  check_images("vit", x, config_.in_channels, config_.dtype, smallest_image());
  check(x.dim(1) == config_.height && x.dim(2) == config_.width, "vit: images must be ", config_.height, "×",
        config_.width, ", x is ", x.shape());
  const int64_t batch = x.dim(0), width = config_.hidden_dim;
  const Dropouts dropouts(dropout);
  const Var patches = ops::reshape(conv_proj_(ops::cast(x, config_.dtype)), {batch, tokens(config_) - 1, width});
  const Var embedded = ops::prepend_token(patches, class_token_, encoder_->positions());
  const Var y = dropouts(ops::reshape(embedded, {batch * tokens(config_), width}), config_.dropout, 0);
  return head_(ops::cast((*encoder_)(y, batch, dropouts), compute_dtype(config_.dtype)));
}

std::string Vit::tensor_name(const std::string& in_file) const {
  std::string name = in_file;
  if (name == "cls_token") return "class_token";
  if (name == "pos_embed") return "encoder.pos_embedding";
  if (replace_prefix(name, "patch_embed.proj.", "conv_proj.") || replace_prefix(name, "norm.", "encoder.ln.") ||
      replace_prefix(name, "head.", "heads.head."))
    return name;
  const bool timm = replace_prefix(name, "blocks.", "encoder.layers.encoder_layer_");
  const std::string layer = "encoder.layers.encoder_layer_";
  const size_t dot = name.starts_with(layer) ? name.find('.', layer.size()) : std::string::npos;
  if (dot == std::string::npos) return name;
  std::string part = name.substr(dot + 1);
  const auto rename = [&](std::initializer_list<std::pair<const char*, const char*>> rows) {
    for (const auto& [from, to] : rows)
      if (replace_prefix(part, from, to)) return;
  };
  if (timm)
    rename({{"norm1.", "ln_1."},
            {"norm2.", "ln_2."},
            {"attn.qkv.", "self_attention.in_proj_"},
            {"attn.proj.", "self_attention.out_proj."},
            {"mlp.fc1.", "mlp.0."},
            {"mlp.fc2.", "mlp.3."}});
  else
    rename({{"mlp.linear_1.", "mlp.0."}, {"mlp.linear_2.", "mlp.3."}});
  return name.substr(0, dot + 1) + part;
}

std::vector<std::string> vit_names() { return names_of(vit_table()); }

VitConfig vit_config(const std::string& name) { return config_of(vit_table(), "vit", name); }

// torchvision truncates conv_proj's weights at ±2. Godwit does not: ±2 is many standard deviations.
std::unique_ptr<Vit> make_vit(const VitConfig& config) {
  auto model = std::make_unique<Vit>(config);
  for (const Parameter& p : model->parameters()) {
    const Shape& shape = p.var.shape();
    const double rows = static_cast<double>(shape[0]);
    const double inputs = static_cast<double>(shape.numel() / shape[0]);
    if (p.name == "conv_proj.weight") nn::fill_normal(p, config.seed, std::sqrt(1 / inputs));
    else if (p.name == "encoder.pos_embedding") nn::fill_normal(p, config.seed, 0.02);
    else if (p.name.ends_with("out_proj.weight")) nn::fill_uniform(p, config.seed, std::sqrt(1 / inputs));
    else if (p.name.ends_with("in_proj_weight") || p.name.ends_with(".mlp.0.weight") ||
             p.name.ends_with(".mlp.3.weight"))
      nn::fill_uniform(p, config.seed, std::sqrt(6 / (inputs + rows)));  // Glorot
    else if (p.name.ends_with(".mlp.0.bias") || p.name.ends_with(".mlp.3.bias"))
      nn::fill_normal(p, config.seed, 1e-6);
  }
  return model;
}

}  // namespace godwit
