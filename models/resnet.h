// ResNet: v1.5 of the ImageNet networks, and the CIFAR networks of He et al. 2016, section 4.2.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "nn/layers.h"

namespace godwit {

struct ResNetConfig {
  std::vector<int64_t> blocks;  // of each stage; each stage but the first halves the image and doubles the channels
  bool bottleneck = false;  // 1×1, 3×3, 1×1 with four times the channels (v1.5: the stride in the 3×3); else two 3×3
  bool cifar = false;       // 16 channels, small stem, shortcuts without parameters (option A: new channels zero,
                            // appended); else 64 channels and 1×1 projections where the shape changes (option B)
  bool small_stem = false;          // for small images: a 3×3 filter of stride 1 and no max-pool (cifar has it always)
  bool zero_init_residual = false;  // the last gamma of each block starts at 0
  int64_t in_channels = 3, num_classes = 1000;
  DType dtype = DType::f32;  // or f64; bf16: of activations from the stem to the pooling, the rest stays float32
  uint64_t seed = 1;         // of the initial parameters
};

std::vector<std::string> resnet_names();              // resnet18 34 50 101, resnet20 32 56
ResNetConfig resnet_config(const std::string& name);  // throws for an unknown name, naming the nearest

// Parameters and buffers are named and ordered as torchvision's: conv1, bn1, layer1.0.conv1, …, fc.
class ResNet : public nn::Module {
 public:
  explicit ResNet(const ResNetConfig& config);
  ~ResNet() override;

  // Images [n, h, w, in_channels] -> logits [n, num_classes], both of the parameters' type. Throws when the images have
  // another type or number of channels, or are smaller than smallest_image() in height or width.
  Var forward(const Var& x) const;
  int64_t smallest_image() const;  // by how much the network reduces height and width
  const ResNetConfig& config() const { return config_; }

 private:
  class Block;
  class Basic;
  class Bottleneck;
  class Stage;

  const ResNetConfig config_;
  const bool small_stem_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::unique_ptr<nn::Linear> fc_;
};

// Initialised as torchvision's (nn/init.h), from config.seed. Throws for settings that describe no network.
std::unique_ptr<ResNet> make_resnet(const ResNetConfig& config);

}  // namespace godwit
