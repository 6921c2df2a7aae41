#include "models/image_model.h"

#include <algorithm>

#include "models/named_configs.h"
#include "models/resnet.h"
#include "models/vgg.h"
#include "models/vit.h"

namespace godwit {
namespace {

// Settings that all networks have.
template <class Config>
Config common(Config config, const ImageModelOptions& options) {
  config.in_channels = options.image[2];
  config.num_classes = options.classes;
  config.dtype = options.dtype;
  config.seed = options.seed;
  return config;
}

std::unique_ptr<ImageModel> make_resnet(const std::string& name, const ImageModelOptions& options) {
  ResNetConfig config = common(resnet_config(name), options);
  config.small_stem = config.small_stem || options.small_stem;
  config.zero_init_residual = options.zero_init_residual;
  return make_resnet(config);
}

std::unique_ptr<ImageModel> make_vgg(const std::string& name, const ImageModelOptions& options) {
  VggConfig config = common(vgg_config(name), options);
  config.dropout = options.dropout.value_or(config.dropout);
  return make_vgg(config);
}

std::unique_ptr<ImageModel> make_vit(const std::string& name, const ImageModelOptions& options) {
  VitConfig config = common(vit_config(name), options);
  config.height = options.image[0], config.width = options.image[1];
  const int64_t side = std::min(config.height, config.width);
  config.patch_size = options.patch_size > 0 ? options.patch_size : side < 64 ? 4 : side < 128 ? 8 : 16;
  config.layers = options.layers > 0 ? options.layers : config.layers;
  config.dropout = options.dropout.value_or(config.dropout);
  return make_vit(config);
}

}  // namespace

void ImageModel::check_images(const char* model, const Var& x, int64_t channels, DType dtype, int64_t smallest,
                              const std::string& hint) {
  const Shape& shape = x.shape();
  check(shape.rank() == 4 && shape[3] == channels, model, ": expects images [n, h, w, ", channels, "], x is ", shape);
  const DType type = compute_dtype(dtype);
  check(x.dtype() == type, model, ": the parameters are ", type, ", x is ", x.dtype());
  check(shape[1] >= smallest && shape[2] >= smallest, model, ": images must be at least ", smallest, "×", smallest,
        ", x is ", shape, hint);
}

std::vector<std::string> image_model_names() {
  std::vector<std::string> names = resnet_names();
  for (const auto& more : {vgg_names(), vit_names()}) names.insert(names.end(), more.begin(), more.end());
  return names;
}

std::unique_ptr<ImageModel> make_image_model(const std::string& name, const ImageModelOptions& options) {
  check(options.image.rank() == 3, name, ": the shape of an image must be [height, width, channels], got ",
        options.image);
  if (contains(resnet_names(), name)) return make_resnet(name, options);
  if (contains(vgg_names(), name)) return make_vgg(name, options);
  if (contains(vit_names(), name)) return make_vit(name, options);
  fail("there is no image model '", name, "'", did_you_mean(name, image_model_names()));
}

}  // namespace godwit
