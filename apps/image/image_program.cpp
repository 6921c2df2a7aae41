// What train_resnet adds to the common settings, and their defaults and checks.
#include <cmath>
#include <utility>

#include "apps/image/image_config.h"
#include "apps/image/image_task.h"
#include "data/image/folder_source.h"
#include "engine/check.h"
#include "models/resnet.h"

namespace godwit::apps {
namespace {

constexpr const char* kPurpose =
    R"(Trains a ResNet on images with N workers: each holds a replica, computes gradients on its own images
and exchanges them, or one bit per parameter, while the backward pass still runs. Examples:

  ./train_resnet --optimizer birder --nodes 8
  ./train_resnet --optimizer sgdm --lr 0.05 --nodes 4 --exchange hierarchical --set schedule=cosine
  ./train_resnet --config runs/RUN/config.json --seed 2 --run-dir runs/again

)";

constexpr const char* kResults = R"(
Results go to the run directory: config.json (every setting except run_dir; giving it to --config
repeats the run), metrics.jsonl (one object per logged step and per evaluation), the final weights.
)";

constexpr Range kMiB{1, 1 << 20};

#define GODWIT_AT(member) [](CommonConfig& c) -> SettingRef { return &static_cast<ImageConfig&>(c).member; }

std::vector<Setting> make_settings() {
  std::vector<Setting> rows = {
      {"model", "model.name", "--model", GODWIT_AT(model.name), "", kAny, resnet_names},
      {"model", "model.small_stem", "", GODWIT_AT(model.small_stem), "resnet18 to 101: 3x3 stem for small images",
       kAny},
      {"model", "model.zero_init_residual", "", GODWIT_AT(model.zero_init_residual),
       "last batch norm of a block starts at 0", kAny},
      {"model", "model.sync_bn", "", GODWIT_AT(model.sync_bn), "batch norm over the batches of all workers", kAny},
      {"model", "init_weights", "--init-weights", GODWIT_AT(init_weights), "start from a safetensors file", kAny, nullptr, "FILE"},
      {"data", "data.path", "--data", GODWIT_AT(data.path), "IDX, CIFAR or class folders [the packaged Fashion-MNIST]", kAny,
       nullptr, "DIR"},
      {"data", "data.pad", "", GODWIT_AT(data.pad), "in memory: pixels around an image before its crop", {0, 64}},
      {"data", "data.flip", "", GODWIT_AT(data.flip), "flip images at random", kAny},
      {"data", "data.crop", "", GODWIT_AT(data.crop), "JPEGs: side of the images trained on [224]", {0, 4096}},
      {"data", "data.resize", "", GODWIT_AT(data.resize), "JPEGs: short side in evaluation [crop 8/7]", {0, 8192}},
      {"data", "data.color_jitter", "", GODWIT_AT(data.color_jitter), "JPEGs: strength", kFraction},
      {"data", "data.mean", "", GODWIT_AT(data.mean), "per channel [ImageNet's; in memory: the data's]", kAny},
      {"data", "data.std", "", GODWIT_AT(data.std), "per channel [as data.mean]", kPositive},
      {"data", "data.max_pixels", "", GODWIT_AT(data.max_pixels), "JPEGs: larger ones are skipped", kAtLeastOne},
      {"data", "data.decode_mib", "", GODWIT_AT(data.decode_mib), "JPEGs: largest coefficients, MiB a thread", kMiB},
      {"data", "data.strict", "--strict", GODWIT_AT(data.strict), "JPEGs: refuse what is else skipped", kAny},
      {"data", "data.label_smoothing", "", GODWIT_AT(data.label_smoothing), "of the training loss", kBelowOne},
      {"data", "data.prefetch", "", GODWIT_AT(data.prefetch), "batches prepared ahead", {1, 1024}},
      {"data", "data.workers", "", GODWIT_AT(data.workers), "that prepare them; 0: up to 2, with a GPU all", {0, 256}},
  };
  const std::vector<Setting> common =
      common_settings({.unit = "images",
                       .eval_batch = "per worker; 0: 250, --batch for large images",
                       .seed = "of initialisation, shuffling, augmentation and quantisation",
                       .run_dir = "results [runs/<model>-<optimizer>-<date>-<time>]"});
  rows.insert(rows.end(), common.begin(), common.end());
  return rows;
}

#undef GODWIT_AT

// Kept as float32, which neither holds 1e-60 nor 1e300.
void check_statistics(const ImageDataConfig& data) {
  for (const double mean : data.mean)
    check(std::isfinite(static_cast<float>(mean)), "data.mean: ", mean, " is too large for float32");
  for (const double std : data.std)
    check(std::isnormal(static_cast<float>(std)), "data.std: ", std, " is ", std < 1 ? "0" : "infinite",
          " in float32, but pixels are divided by it");
  check(data.mean.empty() || data.std.empty() || data.mean.size() == data.std.size(), "data.mean has ",
        data.mean.size(), " and data.std ", data.std.size(), " values; give one of each per channel");
  if (data.crop > 0 || data.resize > 0)  // of JPEGs
    for (const auto& [key, size] : {std::pair{"data.mean", data.mean.size()}, {"data.std", data.std.size()}})
      check(size == 0 || size == 3, key, " has ", size, " values, JPEGs need three (red, green, blue)");
}

void check_together(const CommonConfig& config) {
  const ImageDataConfig& data = static_cast<const ImageConfig&>(config).data;
  const int64_t crop = data.crop > 0 ? data.crop : data::PhotoOptions().crop;
  check(data.resize == 0 || data.resize >= crop, "data.resize ", data.resize, " is below data.crop ", crop,
        data.crop > 0 ? "" : ", its default");
  check_statistics(data);
  check(!config.cuda_graph || !static_cast<const ImageConfig&>(config).model.sync_bn, "cuda_graph: with model.sync_bn ",
        "workers exchange statistics within a pass, which cannot be recorded; leave one of the two out");
}

TaskMaker load(const std::shared_ptr<const CommonConfig>& config, Progress* progress) {
  const auto own = std::static_pointer_cast<const ImageConfig>(config);
  const auto images = std::make_shared<const ImageData>(load_image_data(*own, progress));
  return [own, images](Communicator& comm) { return std::make_unique<ImageTask>(*own, *images, comm); };
}

}  // namespace

const Program& image_program() {
  static const Program program{
      .name = "train_resnet",
      .purpose = kPurpose,
      .results = kResults,
      .default_optimizer = "sgdm",
      .settings = make_settings(),
      .of_the_host = {"data.path", "data.workers"},
      .defaults = [](const auto&) -> ConfigPtr { return std::make_shared<ImageConfig>(); },
      .optimizer_defaults = [](const CommonConfig&, const std::string& name) { return optimizer_defaults(name); },
      .unread = [](const CommonConfig&, const Setting&) { return std::string(); },
      .check = check_together,
      .load = load,
  };
  return program;
}

}  // namespace godwit::apps
