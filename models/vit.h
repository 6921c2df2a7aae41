// ViT: vision transformers (Dosovitskiy et al. 2021), as in torchvision.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/image_model.h"

namespace godwit {

// Sizes and settings of a ViT.
struct VitConfig {
  int64_t hidden_dim = 768, layers = 12, heads = 12, mlp_dim = 3072;  // sizes of the encoder
  int64_t patch_size = 16;            // side of a patch in pixels; must divide height and width
  int64_t height = 224, width = 224;  // size of the images, in pixels
  double dropout = 0;            // dropout after the embedding, the attention, and both layers of the MLP
  double attention_dropout = 0;  // dropout of the attention probabilities
  int64_t in_channels = 3, num_classes = 1000;  // channels of the images; number of logits
  DType dtype = DType::f32;  // or f64; bf16: activations from the patches to the last layer norm
  uint64_t seed = 1;         // seed of the initial parameters
};

// vit_tiny, vit_small, vit_b_16. The first two have 192 and 384 channels and 3 and 6 heads (Touvron et al. 2021, DeiT).
std::vector<std::string> vit_names();
VitConfig vit_config(const std::string& name);  // throws for an unknown name; suggests the nearest

// Names and order of parameters are those of torchvision: class_token, conv_proj.weight, …, heads.head.bias. Layer
// norms precede attention and MLP and have eps 1e-6. The GELU is the erf form.
class Vit : public ImageModel {
 public:
  explicit Vit(const VitConfig& config);  // weights are zero; see make_vit()
  ~Vit() override;

  // Maps images [n, height, width, in_channels] to logits [n, num_classes], both of the parameters' type. Throws if the
  // images have another type or shape.
  Var forward(const Var& x, const DropoutContext* dropout = nullptr) const override;
  int64_t smallest_image() const override { return config_.patch_size; }  // one patch
  // Accepts timm's names (blocks.0.attn.qkv.weight, …) and torchvision's names before version 0.13.
  std::string tensor_name(const std::string& in_file) const override;
  const VitConfig& config() const { return config_; }  // sizes and settings

 private:
  class Block;
  class Encoder;

  const VitConfig config_;
  Var class_token_;
  nn::Conv2d conv_proj_;
  std::unique_ptr<Encoder> encoder_;
  nn::Linear head_;
};

// Creates the network with torchvision's initial weights. The head is 0. Throws for invalid settings.
std::unique_ptr<Vit> make_vit(const VitConfig& config);

}  // namespace godwit
