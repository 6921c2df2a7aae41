#include "models/vgg.h"

#include <utility>

#include "autograd/ops/cast.h"
#include "autograd/ops/pooling/adaptive_avg_pool2d.h"
#include "autograd/ops/pooling/global_avg_pool.h"
#include "autograd/ops/pooling/pool2d.h"
#include "autograd/ops/relu.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/transpose.h"
#include "models/named_configs.h"
#include "nn/init.h"

namespace godwit {
namespace {

constexpr int64_t kPooled = 7;  // height and width that the first linear layer expects

const NamedConfigs<VggConfig>& vgg_table() {
  static const NamedConfigs<VggConfig> rows{
      {"vgg16", {}},
      {"vgg16_bn", {.batch_norm = true}},
      {"vgg16_cifar", {.batch_norm = true, .cifar = true, .num_classes = 10}},
  };
  return rows;
}

const VggConfig& checked(const VggConfig& config) {
  check(!config.stages.empty(), "vgg: the configuration has no stages; start from vgg_config(name)");
  for (const std::vector<int64_t>& stage : config.stages) {
    check(!stage.empty(), "vgg: a stage has no convolutions");
    for (const int64_t channels : stage) check(channels > 0, "vgg: a convolution has ", channels, " channels");
  }
  check(config.hidden > 0, "vgg: hidden must be positive, got ", config.hidden);
  check(config.dropout >= 0 && config.dropout < 1, "vgg: dropout must be in [0, 1), got ", config.dropout);
  check(config.in_channels > 0, "vgg: in_channels must be positive, got ", config.in_channels);
  check(config.num_classes > 0, "vgg: num_classes must be positive, got ", config.num_classes);
  check(config.dtype == DType::f32 || config.dtype == DType::bf16 || config.dtype == DType::f64,
        "vgg: dtype must be f32, bf16 or f64, got ", config.dtype);
  return config;
}

}  // namespace

// A 3×3 convolution with bias, batch norm if the network has it, and a ReLU.
struct Vgg::Layer {
  nn::Conv2d conv;
  std::unique_ptr<nn::BatchNorm2d> bn;

  Layer(int64_t in, int64_t out, bool batch_norm, DType dtype)
      : conv(in, out, 3, {.padding = 1}, dtype, /*bias=*/true),
        bn(batch_norm ? std::make_unique<nn::BatchNorm2d>(out, dtype) : nullptr) {}
  Var operator()(const Var& x) const { return bn ? (*bn)(conv(x), /*relu=*/true) : ops::relu(conv(x)); }
};

Vgg::Vgg(const VggConfig& config) : config_(checked(config)) {
  int64_t in = config.in_channels, index = 0;  // index: in torchvision's list of layers
  for (const std::vector<int64_t>& stage : config.stages) {
    stages_.emplace_back();
    for (const int64_t out : stage) {
      stages_.back().push_back(std::make_unique<Layer>(in, out, config.batch_norm, config.dtype));
      Layer& layer = *stages_.back().back();
      add("features." + std::to_string(index++), layer.conv);
      if (layer.bn) add("features." + std::to_string(index++), *layer.bn);
      ++index;  // ReLU
      in = out;
    }
    ++index;  // max-pool
  }
  const auto linear = [&](const std::string& name, int64_t inputs, int64_t outputs, DType dtype) {
    classifier_.push_back(std::make_unique<nn::Linear>(inputs, outputs, dtype));
    add(name, *classifier_.back());
  };
  const DType last = compute_dtype(config.dtype);
  if (config.cifar) {
    linear("classifier", in, config.num_classes, last);
    return;
  }
  linear("classifier.0", in * kPooled * kPooled, config.hidden, config.dtype);
  linear("classifier.3", config.hidden, config.hidden, config.dtype);
  linear("classifier.6", config.hidden, config.num_classes, last);
}

Vgg::~Vgg() = default;

int64_t Vgg::smallest_image() const { return int64_t{1} << stages_.size(); }

Var Vgg::forward(const Var& x, const DropoutContext* dropout) const {
  check_images("vgg", x, config_.in_channels, config_.dtype, smallest_image());
  Var y = ops::cast(x, config_.dtype);
  for (const auto& stage : stages_) {
    for (const auto& layer : stage) y = (*layer)(y);
    y = ops::max_pool2d(y, {.kernel = 2, .stride = 2});
  }
  return classify(y, dropout);
}

// The first linear layer expects PyTorch's order: channel by channel.
Var Vgg::classify(const Var& x, const DropoutContext* dropout) const {
  const DType type = compute_dtype(config_.dtype);
  if (config_.cifar) return (*classifier_.front())(ops::cast(ops::global_avg_pool(x), type));
  const Dropouts dropouts(dropout);
  const int64_t n = x.dim(0), channels = x.dim(3), pixels = kPooled * kPooled;
  Var y = ops::adaptive_avg_pool2d(x, kPooled, kPooled);
  y = ops::reshape(ops::transpose(ops::reshape(y, {n, pixels, channels})), {n, channels * pixels});
  y = dropouts(ops::relu((*classifier_[0])(y)), config_.dropout, 0);
  y = dropouts(ops::relu((*classifier_[1])(y)), config_.dropout, 1);
  return (*classifier_[2])(ops::cast(y, type));
}

std::vector<std::string> vgg_names() { return names_of(vgg_table()); }

VggConfig vgg_config(const std::string& name) { return config_of(vgg_table(), "vgg", name); }

std::unique_ptr<Vgg> make_vgg(const VggConfig& config) {
  constexpr double kDeviation = 0.01;
  auto model = std::make_unique<Vgg>(config);
  nn::initialize(*model, config.seed);
  if (config.cifar) return model;
  for (const Parameter& p : model->parameters())
    if (p.name.starts_with("classifier.")) {
      if (p.var.shape().rank() == 2) nn::fill_normal(p, config.seed, kDeviation);
      else p.var.value().zero();
    }
  return model;
}

}  // namespace godwit
