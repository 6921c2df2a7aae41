// ResNet: the networks for ImageNet (v1.5) and the networks for CIFAR of He et al. 2016, section 4.2.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/image_model.h"

namespace godwit {

// Sizes and variants of a ResNet.
struct ResNetConfig {
  std::vector<int64_t> blocks;  // per stage; each stage after the first halves the image and doubles the channels
  bool bottleneck = false;  // 1×1, 3×3, 1×1 with four times the channels (v1.5: stride in the 3×3); otherwise two 3×3
  bool cifar = false;       // 16 channels, small stem, shortcuts without parameters (option A: new channels appended as
                            // zeros); otherwise 64 channels, and 1×1 projections where the shape changes (option B)
  int64_t width = 0;        // channels of the stem; 0: 16 with cifar, otherwise 64
  bool small_stem = false;          // 3×3 convolution of stride 1, no max-pool, for small images (always with cifar)
  bool zero_init_residual = false;  // initializes the last gamma of each block to 0
  int64_t in_channels = 3, num_classes = 1000;  // channels of the images; number of logits
  DType dtype = DType::f32;  // or f64; bf16: activations from the stem to the pooling; the rest is float32
  uint64_t seed = 1;         // seed of the initial parameters
};

std::vector<std::string> resnet_names();              // resnet18, 34, 50, 101; CIFAR: resnet20, 32, 56
ResNetConfig resnet_config(const std::string& name);  // throws for an unknown name; suggests the nearest

// Names and order of parameters and buffers are those of torchvision: conv1, bn1, layer1.0.conv1, …, fc.
class ResNet : public ImageModel {
 public:
  explicit ResNet(const ResNetConfig& config);  // weights are zero; see make_resnet()
  ~ResNet() override;

  // Maps images [n, h, w, in_channels] to logits [n, num_classes], both of the parameters' type. Throws if the images
  // have another type or number of channels, or if height or width is below smallest_image(). There is no dropout.
  Var forward(const Var& x, const DropoutContext* dropout = nullptr) const override;
  int64_t smallest_image() const override;  // the factor by which the network reduces height and width
  const ResNetConfig& config() const { return config_; }  // sizes and variants

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

// Creates the network with torchvision's initialization (nn/init.h) from config.seed. Throws for invalid settings.
std::unique_ptr<ResNet> make_resnet(const ResNetConfig& config);

}  // namespace godwit
