#include "apps/image/image_task.h"

#include <algorithm>
#include <cmath>

#include "apps/config/saved_config.h"
#include "apps/train/loader.h"
#include "apps/report/progress.h"
#include "apps/train/device_sum.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/host_tensor.h"
#include "engine/clock.h"
#include "engine/profile.h"
#include "engine/context.h"
#include "models/vit.h"
#include "nn/replicas.h"
#include "nn/weights.h"

namespace godwit::apps {
namespace {

// Large images use the training batch in evaluation: larger batches need more memory and are not faster.
int64_t eval_batch(const ImageConfig& config, const Shape& image) {
  if (config.eval_batch > 0) return config.eval_batch;
  return image[0] * image[1] > 64 * 64 ? config.batch : 250;
}

std::unique_ptr<ImageModel> build_model(const ImageConfig& config, const data::ImageDataset& train) {
  ImageModelOptions options{.image = train.image_shape(),
                            .classes = train.classes(),
                            .seed = config.seed,
                            .small_stem = config.model.small_stem,
                            .zero_init_residual = config.model.zero_init_residual,
                            .patch_size = config.model.patch_size,
                            .layers = config.model.layers};
  if (!config.model.dropout.empty()) options.dropout = config.model.dropout.front();
  if (config.dtype == "bf16") options.dtype = DType::bf16;
  return make_image_model(config.model.name, options);
}

// Remedy if the model rejects images of `side` pixels. Only JPEGs have a data.crop, 224 by default.
std::string smaller_hint(const ImageConfig& config, const ImageModel& model, int64_t side) {
  if (config.data.crop > 0) return "; raise data.crop to " + std::to_string(model.smallest_image());
  if (side < 4) return "";  // no model accepts them
  const bool has_stem = config.model.name.starts_with("resnet") && !config.model.small_stem;
  return has_stem ? "; for small images use resnet20 or --set model.small_stem=true" : "; resnet20 accepts them";
}

// Throws if the file has positions for another number of patches than the images of this run have.
void check_positions(const std::string& path, const Vit& model) {
  Shape positions, filters;
  for (const auto& [name, tensor] : map_weights(path)) {
    if (model.tensor_name(name) == "encoder.pos_embedding") positions = tensor.shape();
    if (model.tensor_name(name) == "conv_proj.weight") filters = tensor.shape();
  }
  if (positions.rank() != 3 || filters.rank() != 4) return;  // load_weights() names what is missing
  const VitConfig& own = model.config();
  const int64_t patch = filters[2], own_patch = own.patch_size;
  const int64_t expected = 1 + own.height / own_patch * (own.width / own_patch);
  if (positions[1] == expected) return;
  const int64_t side = patch * std::llround(std::sqrt(static_cast<double>(positions[1] - 1)));  // if it is square
  fail(path, ": encoder.pos_embedding has ", positions[1], " positions (patches of ", patch, "×", patch,
       " pixels and the class token), but images of ", own.height, "×", own.width, " with patches of ", own_patch, "×",
       own_patch, " have ", expected, "; use ",
       patch == own_patch ? "" : detail::concat("--set model.patch_size=", patch, " and "),
       "images of the size for which the weights were trained, probably ", side, "×", side,
       " (folders of JPEGs: --set data.crop=", side, ")");
}

}  // namespace

ImageTask::ImageTask(const ImageConfig& config, const ImageData& data, Communicator& comm)
    : config_(config),
      data_(data),
      comm_(comm),
      train_(*data.train, loader_options(config, config.data, comm, true, 0)),
      test_(*data.test, loader_options(config, config.data, comm, false, eval_batch(config, data.test->image_shape()))),
      model_(build_model(config, *data.train)),
      notes_(data.notes) {
  const Shape image = data.train->image_shape();
  check(std::min(image[0], image[1]) >= model_->smallest_image(), config.model.name, ": images must be at least ",
        model_->smallest_image(), "×", model_->smallest_image(), ", the data has ", image[0], "×", image[1],
        smaller_hint(config, *model_, std::min(image[0], image[1])));
  check_data(*comm.world, data.train->hash(), "the training data");
  check_data(*comm.world, data.test->hash(), "the test data");
  if (!config.init_weights.empty() && continued_checkpoint(config).empty()) load_initial_weights();
  if (config.model.sync_bn) nn::synchronize_batch_norm(*model_, comm.compute);
}

// The last layer keeps its initial values if the file has other classes or no such layer.
void ImageTask::load_initial_weights() {
  const auto busy = comm_.world->control()->busy();  // a host may read its data much more slowly than another
  if (const auto* vit = dynamic_cast<const Vit*>(model_.get())) check_positions(config_.init_weights, *vit);
  const std::vector<Parameter> parameters = model_->parameters();
  const std::vector<std::string> head{parameters.end()[-2].name, parameters.end()[-1].name};
  const bool kept = nn::load_weights(
      config_.init_weights, *model_, [this](const std::string& in_file) { return model_->tensor_name(in_file); }, head);
  const std::string without = kept ? ", without " + head[0] + " and " + head[1] + ": the last layer is new" : "";
  notes_.push_back({"weights", config_.init_weights + without});
}

data::Batch ImageTask::next(int64_t micro_batch, double& waited) {
  const ProfileRange range("data wait");
  const auto asked = Clock::now();
  std::optional<data::Batch> batch = train_.next();
  waited = seconds_since(asked);
  check(batch.has_value(), "micro-batch ", micro_batch, ": the loader has no batch left");
  check(micro_batch <= UINT32_MAX, "micro-batch ", micro_batch, ": dropout supports at most 2³² micro-batches");
  return std::move(*batch);
}

Forward ImageTask::loss(const data::Batch& batch, const DropoutContext& run) {
  const Var logits = model_->forward(Var(batch.images), &run);
  const double images = static_cast<double>(batch.labels.numel());
  return {.loss = ops::softmax_cross_entropy(logits, batch.labels, config_.data.label_smoothing),
          .correct = {ops::top_k_correct(logits.value(), batch.labels, 1)},
          .answers = images,
          .samples = images};
}

Forward ImageTask::forward(int64_t micro_batch) {
  double waited = 0;
  const data::Batch batch = next(micro_batch, waited);
  Forward result = loss(batch, {config_.seed, static_cast<uint32_t>(micro_batch), static_cast<uint32_t>(comm_.rank)});
  result.data_wait_s = waited;
  return result;
}

// All batches of a training epoch are complete and therefore have equal shapes.
LoadedBatch ImageTask::load_batch(int64_t micro_batch) {
  double waited = 0;
  const data::Batch batch = next(micro_batch, waited);
  if (!fixed_.images.defined())
    fixed_ = {Tensor(batch.images.shape(), batch.images.dtype()), Tensor(batch.labels.shape(), DType::i32, kCpu)};
  fixed_.images.copy_from(batch.images);
  fixed_.labels.copy_from(batch.labels);
  if (!micro_batch_.defined()) micro_batch_ = Tensor({1}, DType::u32, kCpu);
  micro_batch_.data<uint32_t>()[0] = static_cast<uint32_t>(micro_batch);
  return {{batch.images.dim(0)}, waited};
}

Forward ImageTask::forward_loaded() {
  return loss(fixed_, {config_.seed, 0, static_cast<uint32_t>(comm_.rank), micro_batch_.to(context().device)});
}

// With sync_bn, the buffers differ only after a resume that has turned sync_bn on. A mean of equal values may round.
void ImageTask::average_buffers() {
  if (config_.model.sync_bn) nn::broadcast_buffers(*model_, *comm_.world);
  else nn::average_buffers(*model_, *comm_.world);
}

Evaluation ImageTask::evaluate(const ReadParameters& read, const CheckStop& check_stop) {
  NoGrad no_grad;
  model_->train(false);
  test_.start_epoch(0);
  DeviceSum losses, first, among_five;
  double images = 0;
  read([&] {
    while (auto batch = test_.next()) {
      check_stop();
      const Var logits = model_->forward(Var(batch->images));
      const double samples = static_cast<double>(batch->labels.numel());
      losses.add(ops::softmax_cross_entropy(logits, batch->labels).value(), samples);
      first.add(ops::top_k_correct(logits.value(), batch->labels, 1));
      among_five.add(ops::top_k_correct(logits.value(), batch->labels, 5));
      images += samples;
    }
  });
  const Tensor sums = cpu_tensor<double>({losses.sum(), first.sum(), among_five.sum(), images});
  comm_.world->all_reduce(sums, Reduce::sum, "evaluation/all_reduce");
  const double* sum = sums.data<double>();
  const double top1 = sum[1] / sum[3], top5 = sum[2] / sum[3];
  return {.loss = sum[0] / sum[3],
          .metrics = {{"test_top1", top1}, {"test_top5", top5}},
          .text = "top-1 " + percent(top1) + ", top-5 " + percent(top5)};
}

std::vector<std::string> ImageTask::corrupt_files() {
  std::vector<std::string> all = data_.train->warnings();
  const std::vector<std::string> test = data_.test->warnings();
  all.insert(all.end(), test.begin(), test.end());
  return all;
}

void ImageTask::save(const std::string& run_dir, const std::string& which) {
  nn::save_weights(run_dir + "/" + which + ".safetensors", *model_);
}

}  // namespace godwit::apps
