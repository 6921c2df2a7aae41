// The options of train_resnet with their defaults and checks.
#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/image/image_config.h"
#include "apps/image/image_task.h"
#include "data/image/image_folder_dataset.h"
#include "engine/check.h"
#include "models/resnet.h"
#include "models/vgg.h"
#include "models/vit.h"

namespace godwit::apps {
namespace {

constexpr const char* kPurpose =
    R"(Trains a network on images with N workers (data parallelism). Each worker computes gradients on its
own images. The workers exchange gradients, or one bit per parameter, during the backward pass.
Examples:

  ./train_resnet --optimizer birder --nodes 8
  ./train_resnet --optimizer sgdm --lr 0.05 --nodes 4 --exchange hierarchical --set schedule=cosine
  ./train_resnet --model vgg16_cifar --data cifar10 --set data.pad=4 --optimizer birder --nodes 4
  ./train_resnet --config runs/RUN/config.json --seed 2 --run-dir runs/again

)";

constexpr const char* kResults = R"(
Results go to the run directory: config.json (every option except run_dir; --config with this file
repeats the run), metrics.jsonl (one object per logged step and per evaluation), the final weights.
)";

// The values are stored as float32, which cannot represent 1e-60 or 1e300.
void check_statistics(const ImageDataConfig& data) {
  for (const double mean : data.mean)
    check(std::isfinite(static_cast<float>(mean)), "data.mean: ", mean, " is too large for float32");
  for (const double std : data.std)
    check(std::isnormal(static_cast<float>(std)), "data.std: ", std, " is ", std < 1 ? "0" : "infinite",
          " in float32, but pixels are divided by it");
  check(data.mean.empty() || data.std.empty() || data.mean.size() == data.std.size(), "data.mean has ",
        data.mean.size(), " and data.std ", data.std.size(), " values; give one of each per channel");
  if (data.crop > 0 || data.resize > 0)  // set only for JPEGs
    for (const auto& [key, size] : {std::pair{"data.mean", data.mean.size()}, {"data.std", data.std.size()}})
      check(size == 0 || size == 3, key, " has ", size, " values; JPEGs need three (red, green, blue)");
}

TaskMaker load(const std::shared_ptr<const CommonConfig>& config, Progress* progress) {
  const auto own = std::static_pointer_cast<const ImageConfig>(config);
  const auto images = std::make_shared<const ImageData>(load_image_data(*own, progress));
  return [own, images](Communicator& comm) { return std::make_unique<ImageTask>(*own, *images, comm); };
}

}  // namespace

void ImageConfig::check_together() const {
  check(model.dropout.size() <= 1, "model.dropout has ", model.dropout.size(), " values; expected at most one");
  const int64_t crop = data.crop > 0 ? data.crop : data::PhotoOptions().crop;
  check(data.resize == 0 || data.resize >= crop, "data.resize ", data.resize, " is below data.crop ", crop,
        data.crop > 0 ? "" : ", its default");
  check_statistics(data);
  check(!cuda_graph || !model.sync_bn, "cuda_graph: with model.sync_bn workers exchange statistics within a ",
        "pass, which cannot be captured; disable one of them");
}

void ImageConfig::describe(OptionList& list) {
  list.section = "model";
  list.add("model.name", model.name, "network").with_flag("--model").with_choices(image_model_names());
  const auto only_for = [&](Option& option, const std::vector<std::string>& networks, const std::string& family) {
    const bool applies = std::find(networks.begin(), networks.end(), model.name) != networks.end();
    option.only_if(applies, model.name + " does not read " + option.name + ", only " + family + " does");
  };
  const std::vector<std::string> resnets = resnet_names(), vits = vit_names();
  std::vector<std::string> with_dropout = vits, without_batch_norm = vits;
  for (const std::string& name : vgg_names()) {
    if (!vgg_config(name).cifar) with_dropout.push_back(name);
    if (!vgg_config(name).batch_norm) without_batch_norm.push_back(name);
  }
  only_for(list.add("model.small_stem", model.small_stem, "resnet18 to 101: 3x3 stem for small images"), resnets,
           "a ResNet");
  only_for(list.add("model.zero_init_residual", model.zero_init_residual,
                    "initialize gamma of each block's last batch norm to 0"),
           resnets, "a ResNet");
  list.add("model.sync_bn", model.sync_bn, "batch norm over the batches of all workers")
      .ignored_if(std::ranges::find(without_batch_norm, model.name) != without_batch_norm.end(),
                  model.name + " has no batch norm; leave it out");
  only_for(list.add("model.patch_size", model.patch_size, "ViT: side of a patch in pixels; 0: 4, 8 or 16 by image size",
                    {0, 1024}),
           vits, "a ViT");
  only_for(list.add("model.layers", model.layers, "ViT: number of layers; 0: the network's default", {0, 1000}), vits,
           "a ViT");
  only_for(list.add("model.dropout", model.dropout, "VGG and ViT: dropout probability; empty: the network's default",
                    {0, 1, false, true}),
           with_dropout, "a VGG with three linear layers or a ViT");
  list.add("init_weights", init_weights, "safetensors file to start from")
      .with_flag("--init-weights", "FILE")
      .differs_by_host();

  list.section = "data", list.prefix = "data.";
  list.add("path", data.path, "folder of IDX or CIFAR files, or of class folders")
      .with_shown_default("the packaged Fashion-MNIST")
      .with_flag("--data", "DIR")
      .differs_by_host();
  list.add("pad", data.pad, "images in memory: pixels added on each side before a random crop", {0, 64});
  list.add("flip", data.flip, "random horizontal flip");
  list.add("crop", data.crop, "JPEGs: side of the network's input; 0: 224", {0, 4096});
  list.add("resize", data.resize, "JPEGs: short side in evaluation; 0: 8/7 of crop", {0, 8192});
  list.add("color_jitter", data.color_jitter, "JPEGs: strength of random brightness, contrast and saturation",
           kFraction);
  list.add("mean", data.mean,
           "mean per channel, for pixel values in [0, 1]; empty: ImageNet's for JPEGs, computed for images in memory");
  list.add("std", data.std, "standard deviation per channel; empty: as for data.mean", kPositive);
  list.add("max_pixels", data.max_pixels, "JPEGs: skip images with more pixels", kAtLeastOne);
  list.add("decode_mib", data.decode_mib, "JPEGs: skip progressive images whose coefficients need more MiB per thread",
           {1, 1 << 20});
  list.add("strict", data.strict, "JPEGs: fail on a file that would otherwise be skipped").with_flag("--strict");
  list.add("label_smoothing", data.label_smoothing, "label smoothing of the training loss", {0, 1, false, true});
  list.add("prefetch", data.prefetch, "batches prepared in advance", {1, 1024});
  list.add("workers", data.workers,
           "loader threads per worker; 0: at most 2 on the CPU, all of the worker's threads with a GPU", {0, 256})
      .differs_by_host();

  list.prefix = "";
  describe_common(list, {.unit = "images",
                         .eval_batch = "images per worker in an evaluation; 0: 250, or --batch for large images",
                         .seed = "seed of initialization, shuffling, augmentation and quantization",
                         .run_dir = "runs/<model>-<optimizer>-<date>-<time>"});
}

const Program& image_program() {
  static const Program program{
      .name = "train_resnet",
      .purpose = kPurpose,
      .results = kResults,
      .default_optimizer = "sgdm",
      .defaults = [](const Lookup& lookup) -> ConfigPtr {
        auto config = std::make_shared<ImageConfig>();
        if (const std::string model = lookup("model.name"); !model.empty()) config->model.name = model;
        return config;
      },
      .optimizer_defaults = [](const CommonConfig&, const std::string& name) { return OptimizerConfig(name); },
      .load = load,
  };
  return program;
}

}  // namespace godwit::apps
