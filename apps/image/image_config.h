// The configuration of train_resnet.
#pragma once
#include <string>
#include <vector>

#include "apps/config/program.h"

namespace godwit::apps {

struct ImageModelConfig {
  std::string name = "resnet20";
  bool small_stem = false;         // resnet18 … 101: 3×3 stride 1 and no pooling, for small images
  bool zero_init_residual = true;  // the last batch norm of each block starts at gamma 0
  bool sync_bn = false;            // batch norm over the batches of all workers
};

struct ImageDataConfig {
  std::string path;  // folder of IDX or CIFAR files or of class folders; empty: the distribution's Fashion-MNIST
  int pad = 0;       // images in memory: pixels on each side before a random crop of the original size; 0: no crop
  bool flip = true;  // random horizontal flip
  int64_t crop = 0, resize = 0;   // JPEGs: side of the model's images (0: 224); short side in evaluation (0: crop·8/7)
  double color_jitter = 0;        // JPEGs: strength of random brightness, contrast and saturation; 0: none
  std::vector<double> mean, std;  // per channel, of values in [0, 1]; empty: ImageNet's, or the data's when in memory
  int64_t max_pixels = 64000000;  // JPEGs: larger ones are skipped
  int64_t decode_mib = 256;       // JPEGs: progressive ones whose coefficients take more are skipped
  bool strict = false;            // JPEGs: refuse what else is skipped
  double label_smoothing = 0;
  int prefetch = 2;  // batches prepared ahead, at least 1
  int workers = 0;   // threads of a worker that prepare them; 0: 2, with a GPU all it has
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
