// ImageModel: the interface of image classifiers, and a function that creates them by name.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/dropout.h"
#include "nn/layers.h"

namespace godwit {

// A network that classifies images.
class ImageModel : public nn::Module {
 public:
  // Maps images [n, h, w, channels] to logits [n, classes], both of the parameters' type. Without `dropout`, nothing is
  // dropped. Throws if the network does not accept the images' type or shape.
  virtual Var forward(const Var& x, const DropoutContext* dropout = nullptr) const = 0;
  virtual int64_t smallest_image() const = 0;  // minimum height and width of the images
  // Returns this network's name for a tensor in a weight file. For files of other libraries.
  virtual std::string tensor_name(const std::string& in_file) const { return in_file; }

 protected:
  // Throws unless x is [n, h, w, channels] of the parameters' type, and h and w are at least `smallest`. Messages begin
  // with `model`. `hint` ends the message about small images.
  static void check_images(const char* model, const Var& x, int64_t channels, DType dtype, int64_t smallest,
                           const std::string& hint = "");
};

// Settings of make_image_model(). A network ignores the settings of other networks.
struct ImageModelOptions {
  Shape image{224, 224, 3};  // height, width and channels of the images
  int64_t classes = 1000;    // number of logits
  DType dtype = DType::f32;  // f32, f64; bf16: only activations
  uint64_t seed = 1;         // seed of the initial parameters
  bool small_stem = false, zero_init_residual = false;  // ResNet: see ResNetConfig
  int64_t patch_size = 0;               // ViT: side of a patch; 0: 16, or 8 for images below 128 pixels, or 4 below 64
  int64_t layers = 0;                   // ViT: number of layers; 0: the network's default
  std::optional<double> dropout = {};   // VGG and ViT: see VggConfig and VitConfig; unset: the network's default
};

std::vector<std::string> image_model_names();  // names of resnet.h, vgg.h and vit.h

// Creates the network with initial weights. Throws for an unknown name (and suggests the nearest) and for invalid
// settings.
std::unique_ptr<ImageModel> make_image_model(const std::string& name, const ImageModelOptions& options);

}  // namespace godwit
