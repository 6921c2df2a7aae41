#include "models/resnet.h"

#include <utility>

#include "autograd/ops/cast.h"
#include "autograd/ops/pooling/global_avg_pool.h"
#include "autograd/ops/pooling/pool2d.h"
#include "autograd/ops/subsample_pad.h"
#include "models/named_configs.h"
#include "nn/init.h"

namespace godwit {
namespace {

constexpr int64_t kExpansion = 4;  // output channels of a bottleneck over its width

const NamedConfigs<ResNetConfig>& resnet_table() {
  static const NamedConfigs<ResNetConfig> rows{
      {"resnet18", {.blocks = {2, 2, 2, 2}}},
      {"resnet34", {.blocks = {3, 4, 6, 3}}},
      {"resnet50", {.blocks = {3, 4, 6, 3}, .bottleneck = true}},
      {"resnet101", {.blocks = {3, 4, 23, 3}, .bottleneck = true}},
      {"resnet20", {.blocks = {3, 3, 3}, .cifar = true, .num_classes = 10}},
      {"resnet32", {.blocks = {5, 5, 5}, .cifar = true, .num_classes = 10}},
      {"resnet56", {.blocks = {9, 9, 9}, .cifar = true, .num_classes = 10}},
  };
  return rows;
}

const ResNetConfig& checked(const ResNetConfig& config) {
  check(!config.blocks.empty(), "resnet: the configuration has no stages; start from resnet_config(name)");
  for (const int64_t blocks : config.blocks) check(blocks > 0, "resnet: a stage has ", blocks, " blocks");
  check(config.width >= 0, "resnet: width must not be negative, got ", config.width);
  check(config.in_channels > 0, "resnet: in_channels must be positive, got ", config.in_channels);
  check(config.num_classes > 0, "resnet: num_classes must be positive, got ", config.num_classes);
  check(config.dtype == DType::f32 || config.dtype == DType::bf16 || config.dtype == DType::f64,
        "resnet: dtype must be f32, bf16 or f64, got ", config.dtype);
  check(!(config.cifar && config.bottleneck), "resnet: cifar and bottleneck are both set; cifar needs basic blocks");
  return config;
}

int64_t first_width(const ResNetConfig& config) { return config.width > 0 ? config.width : config.cifar ? 16 : 64; }

// Option B shortcut: 1×1 convolution and batch norm, named 0 and 1 as in torchvision.
class Projection : public nn::Module {
 public:
  Projection(int64_t in, int64_t out, int stride, DType dtype)
      : conv_(in, out, 1, {.stride = stride}, dtype), bn_(out, dtype) {
    add("0", conv_);
    add("1", bn_);
  }
  Var operator()(const Var& x) const { return bn_(conv_(x)); }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d bn_;
};

}  // namespace

// y = relu(residual(x) + shortcut(x)); the residual's last batch norm fuses the addition and the ReLU.
class ResNet::Block : public nn::Module {
 public:
  Block(const ResNetConfig& config, int64_t in, int64_t out, int stride) : out_(out), stride_(stride) {
    if (in == out && stride == 1) return;
    if (config.cifar) pads_ = true;
    else projection_ = std::make_unique<Projection>(in, out, stride, config.dtype);
  }
  Var operator()(const Var& x) const { return add_relu(x, shortcut(x)); }

 protected:
  virtual Var add_relu(const Var& x, const Var& shortcut) const = 0;
  void add_projection() {  // registered after the residual's layers, as in torchvision
    if (projection_) add("downsample", *projection_);
  }
  static double last_gamma(const ResNetConfig& config) { return config.zero_init_residual ? 0 : 1; }

 private:
  Var shortcut(const Var& x) const {
    if (projection_) return (*projection_)(x);
    return pads_ ? ops::subsample_pad(x, stride_, out_) : x;
  }

  int64_t out_;
  int stride_;
  bool pads_ = false;
  std::unique_ptr<Projection> projection_;
};

class ResNet::Basic : public Block {
 public:
  Basic(const ResNetConfig& config, int64_t in, int64_t width, int stride)
      : Block(config, in, width, stride),
        conv1_(in, width, 3, {.stride = stride, .padding = 1}, config.dtype),
        bn1_(width, config.dtype),
        conv2_(width, width, 3, {.padding = 1}, config.dtype),
        bn2_(width, config.dtype, last_gamma(config)) {
    add("conv1", conv1_);
    add("bn1", bn1_);
    add("conv2", conv2_);
    add("bn2", bn2_);
    add_projection();
  }

 protected:
  Var add_relu(const Var& x, const Var& shortcut) const override {
    return bn2_.add_relu(conv2_(bn1_(conv1_(x), /*relu=*/true)), shortcut);
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
};

class ResNet::Bottleneck : public Block {
 public:
  Bottleneck(const ResNetConfig& config, int64_t in, int64_t width, int stride)
      : Block(config, in, kExpansion * width, stride),
        conv1_(in, width, 1, {}, config.dtype),
        bn1_(width, config.dtype),
        conv2_(width, width, 3, {.stride = stride, .padding = 1}, config.dtype),
        bn2_(width, config.dtype),
        conv3_(width, kExpansion * width, 1, {}, config.dtype),
        bn3_(kExpansion * width, config.dtype, last_gamma(config)) {
    add("conv1", conv1_);
    add("bn1", bn1_);
    add("conv2", conv2_);
    add("bn2", bn2_);
    add("conv3", conv3_);
    add("bn3", bn3_);
    add_projection();
  }

 protected:
  Var add_relu(const Var& x, const Var& shortcut) const override {
    return bn3_.add_relu(conv3_(bn2_(conv2_(bn1_(conv1_(x), /*relu=*/true)), /*relu=*/true)), shortcut);
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  nn::Conv2d conv3_;
  nn::BatchNorm2d bn3_;
};

class ResNet::Stage : public nn::Module {
 public:
  Stage(const ResNetConfig& config, int64_t in, int64_t width, int64_t blocks, int stride) {
    for (int64_t i = 0; i < blocks; ++i) {
      if (config.bottleneck) blocks_.push_back(std::make_unique<Bottleneck>(config, in, width, stride));
      else blocks_.push_back(std::make_unique<Basic>(config, in, width, stride));
      add(std::to_string(i), *blocks_.back());
      in = config.bottleneck ? kExpansion * width : width;
      stride = 1;
    }
  }
  Var operator()(Var x) const {
    for (const auto& block : blocks_) x = (*block)(x);
    return x;
  }

 private:
  std::vector<std::unique_ptr<Block>> blocks_;
};

ResNet::ResNet(const ResNetConfig& config)
    : config_(checked(config)),
      small_stem_(config.small_stem || config.cifar),
      conv1_(config.in_channels, first_width(config), small_stem_ ? 3 : 7,
             {.stride = small_stem_ ? 1 : 2, .padding = small_stem_ ? 1 : 3}, config.dtype),
      bn1_(first_width(config), config.dtype) {
  add("conv1", conv1_);
  add("bn1", bn1_);
  int64_t width = first_width(config), in = width;
  for (const int64_t blocks : config.blocks) {
    stages_.push_back(std::make_unique<Stage>(config_, in, width, blocks, stages_.empty() ? 1 : 2));
    add("layer" + std::to_string(stages_.size()), *stages_.back());
    in = config.bottleneck ? kExpansion * width : width;
    width *= 2;
  }
  fc_ = std::make_unique<nn::Linear>(in, config.num_classes, config.dtype);
  add("fc", *fc_);
}

ResNet::~ResNet() = default;

int64_t ResNet::smallest_image() const { return (small_stem_ ? 1 : 4) << (stages_.size() - 1); }

Var ResNet::forward(const Var& x, const DropoutContext*) const {
  check_images("resnet", x, config_.in_channels, config_.dtype, smallest_image(),
               small_stem_ ? "" : "; use small_stem for smaller images");
  Var y = bn1_(conv1_(ops::cast(x, config_.dtype)), /*relu=*/true);
  if (!small_stem_) y = ops::max_pool2d(y, {.kernel = 3, .stride = 2, .padding = 1});
  for (const auto& stage : stages_) y = (*stage)(y);
  return (*fc_)(ops::cast(ops::global_avg_pool(y), compute_dtype(config_.dtype)));
}

std::vector<std::string> resnet_names() { return names_of(resnet_table()); }

ResNetConfig resnet_config(const std::string& name) { return config_of(resnet_table(), "resnet", name); }

std::unique_ptr<ResNet> make_resnet(const ResNetConfig& config) {
  auto model = std::make_unique<ResNet>(config);
  nn::initialize(*model, config.seed);
  return model;
}

}  // namespace godwit
