// The configuration of train_resnet.
#pragma once
#include <string>
#include <vector>

#include "apps/config/program.h"

namespace godwit::apps {

struct ImageModelConfig {
  std::string name = "resnet20";
  bool small_stem = false;  // resnet18 … resnet101: 3×3 convolution with stride 1 and no pooling, for small images
  bool zero_init_residual = true;  // ResNet: initialize gamma of each block's last batch norm to 0
  bool sync_bn = false;            // batch norm over the batches of all workers
  int64_t patch_size = 0, layers = 0;  // ViT: side of a patch in pixels, number of layers; 0: see ImageModelOptions
  std::vector<double> dropout;         // VGG, ViT: one probability; empty: the network's default
};

struct ImageDataConfig {
  std::string path;  // folder of IDX or CIFAR files, or of class folders; empty: Debian's Fashion-MNIST package
  int pad = 0;       // images in memory: padding in pixels before a random crop to the original size; 0: no crop
  bool flip = true;  // random horizontal flip
  int64_t crop = 0, resize = 0;   // JPEGs: side of the input (0: 224); short side in evaluation (0: crop·8/7)
  double color_jitter = 0;        // JPEGs: strength of random brightness, contrast and saturation; 0: none
  // Per channel, for pixel values in [0, 1]. Empty: ImageNet's values for JPEGs, computed values for images in memory.
  std::vector<double> mean, std;
  int64_t max_pixels = 64000000;  // JPEGs: larger images are skipped
  int64_t decode_mib = 256;       // JPEGs: progressive images whose coefficients need more memory are skipped
  bool strict = false;            // JPEGs: fail on an unusable file instead of skipping it
  double label_smoothing = 0;
  int prefetch = 2;  // number of batches prepared in advance, at least 1
  int workers = 0;   // loader threads per worker; 0: at most 2 on the CPU, all of the worker's threads with a GPU
};

struct ImageConfig : CommonConfig {
  ImageConfig() { schedule.name = "cosine"; }
  void check_together() const override;

  ImageModelConfig model;
  ImageDataConfig data;

 protected:
  void describe(OptionList& list) override;
};

const Program& image_program();  // train_resnet

}  // namespace godwit::apps
