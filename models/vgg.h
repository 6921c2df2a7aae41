// VGG-16 (Simonyan and Zisserman 2015, configuration D), as in torchvision, and its common variant for CIFAR.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/image_model.h"

namespace godwit {

// Sizes and variants of a VGG network.
struct VggConfig {
  // Channels of the 3×3 convolutions, by stage. Every stage ends with a max-pool that halves the image.
  std::vector<std::vector<int64_t>> stages{{64, 64}, {128, 128}, {256, 256, 256}, {512, 512, 512}, {512, 512, 512}};
  bool batch_norm = false;  // whether batch norm follows every convolution
  bool cifar = false;       // classifier: the mean over the pixels and one linear layer; otherwise adaptive pooling to
                            // 7×7 and three linear layers
  int64_t hidden = 4096;    // width of the first two linear layers; unused with cifar
  double dropout = 0.5;     // dropout after each of these layers; unused with cifar
  int64_t in_channels = 3, num_classes = 1000;  // channels of the images; number of logits
  DType dtype = DType::f32;  // or f64; bf16: activations up to the last linear layer, which is float32
  uint64_t seed = 1;         // seed of the initial parameters
};

std::vector<std::string> vgg_names();           // vgg16 vgg16_bn vgg16_cifar
VggConfig vgg_config(const std::string& name);  // throws for an unknown name; suggests the nearest

// Names and order of parameters and buffers are those of torchvision: features.0.weight, …, classifier.6.bias. With
// cifar, the single linear layer is named `classifier`.
class Vgg : public ImageModel {
 public:
  explicit Vgg(const VggConfig& config);  // weights are zero; see make_vgg()
  ~Vgg() override;

  // Maps images [n, h, w, in_channels] to logits [n, num_classes], both of the parameters' type. Throws if the images
  // have another type or number of channels, or if height or width is below smallest_image().
  Var forward(const Var& x, const DropoutContext* dropout = nullptr) const override;
  int64_t smallest_image() const override;  // the factor by which the stages reduce height and width
  const VggConfig& config() const { return config_; }  // sizes and variants

 private:
  struct Layer;

  Var classify(const Var& x, const DropoutContext* dropout) const;

  const VggConfig config_;
  std::vector<std::vector<std::unique_ptr<Layer>>> stages_;
  std::vector<std::unique_ptr<nn::Linear>> classifier_;
};

// Creates the network with torchvision's initial weights: filters as in nn/init.h, matrices normal with standard
// deviation 0.01, biases 0. With cifar, the linear layer is initialized as in nn/init.h. Throws for invalid settings.
std::unique_ptr<Vgg> make_vgg(const VggConfig& config);

}  // namespace godwit
