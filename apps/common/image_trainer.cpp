#include "apps/common/image_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <set>
#include <sstream>

#include "apps/common/interrupt.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/agree.h"
#include "engine/kernel_library.h"
#include "nn/replicas.h"
#include "nn/weights.h"

namespace godwit::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kDiverged = "; lower --lr or warm it up (--set schedule.warmup_epochs=1)";

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Large images take much memory in an evaluation, and few at a time are as fast.
int64_t eval_batch(const TrainConfig& config, const Shape& image) {
  if (config.eval_batch > 0) return config.eval_batch;
  return image[0] * image[1] > 64 * 64 ? config.batch : 250;
}

data::LoaderOptions loader_options(const TrainConfig& config, const data::ImageSource& images, const Communicator& comm,
                                   bool train) {
  data::LoaderOptions options;
  options.batch = train ? config.batch : eval_batch(config, images.image_shape());
  options.rank = comm.rank;
  options.world = comm.topology.world();
  options.seed = config.seed;
  options.train = train;
  options.prefetch = config.data.prefetch;
  options.workers = config.data.workers > 0 ? config.data.workers : std::min(2, context().threads);
  return options;
}

std::unique_ptr<ResNet> build_model(const TrainConfig& config, const data::ImageSource& train) {
  ResNetConfig model = resnet_config(config.model.name);
  model.num_classes = train.classes();
  model.in_channels = train.image_shape()[2];
  model.small_stem = model.small_stem || config.model.small_stem;
  model.zero_init_residual = config.model.zero_init_residual;
  model.seed = config.seed;
  if (config.dtype == "bf16") model.dtype = DType::bf16;
  return make_resnet(model);
}

BucketOptions bucket_options(const TrainConfig& config) {
  const auto bytes = [](double mib) { return std::max<int64_t>(1, std::llround(mib * (1 << 20))); };
  BucketOptions options;
  options.first_bytes = bytes(config.bucket.first_mib);
  options.bytes = bytes(config.bucket.mib);
  return options;
}

// Micro-batches left over at the end of an epoch are dropped, like an incomplete batch.
int64_t steps_of_epoch(const TrainConfig& config, int64_t batches) {
  check(config.accumulation <= batches, "accumulation: ", config.accumulation,
        " micro-batches per step, but a worker has ", batches, batches == 1 ? " batch" : " batches",
        " in an epoch; lower --accumulation or --batch");
  return batches / config.accumulation;
}

int64_t planned_steps(const TrainConfig& config, int64_t steps_per_epoch) {
  const int64_t all = config.epochs * steps_per_epoch;
  return config.max_steps > 0 ? std::min(config.max_steps, all) : all;
}

std::string percent(double fraction) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << 100 * fraction << " %";
  return text.str();
}

// What to do when the model does not take images of `side` pixels. Only JPEGs have a data.crop, 224 where it is not said.
std::string smaller_hint(const TrainConfig& config, const ResNet& model, int64_t side) {
  if (config.data.crop > 0) return "; raise data.crop to " + std::to_string(model.smallest_image());
  if (side < 4) return "";  // no model does
  return config.model.small_stem ? "; resnet20 takes them"
                                 : "; for small images use resnet20 or --set model.small_stem=true";
}

}  // namespace

ImageTrainer::ImageTrainer(const TrainConfig& config, const ImageData& data, Communicator& comm)
    : config_(config),
      data_(data),
      comm_(comm),
      train_(*data.train, loader_options(config, *data.train, comm, true)),
      test_(*data.test, loader_options(config, *data.test, comm, false)),
      model_(build_model(config, *data.train)),
      steps_per_epoch_(steps_of_epoch(config, train_.batches())),
      total_steps_(planned_steps(config, steps_per_epoch_)),
      schedule_(config.schedule, config.optimizer.lr, steps_per_epoch_, total_steps_) {
  const Shape image = data.train->image_shape();
  check(std::min(image[0], image[1]) >= model_->smallest_image(), config.model.name, ": images must be at least ",
        model_->smallest_image(), "×", model_->smallest_image(), ", those of the data are ", image[0], "×", image[1],
        smaller_hint(config, *model_, std::min(image[0], image[1])));
  check_same(*comm.world, data.train->hash(), "the training data");
  check_same(*comm.world, data.test->hash(), "the test data");
  if (!config.init_weights.empty()) nn::load_weights(config.init_weights, *model_);
  DataParallelOptions options{.optimizer = config.optimizer, .exchange = config.exchange.name, .seed = config.seed};
  options.wire = config.exchange.wire;
  options.buckets = bucket_options(config);
  options.clip_norm = config.clip.norm;
  options.updated = [this](const Bucket& bucket, const StepInfo& step) {
    if (ema_) ema_->update(bucket, step.step);
  };
  replica_ = std::make_unique<DataParallel>(model_->parameters(), comm, options);
  if (config.model.sync_bn) nn::synchronise_batch_norm(*model_, comm.compute);
  if (config.ema.decay == 0) return;
  std::vector<Tensor> buffers;
  for (const nn::NamedTensor& buffer : model_->buffers()) buffers.push_back(buffer.tensor);
  ema_ = std::make_unique<Ema>(replica_->buckets(), std::move(buffers), config.ema.decay);
}

void ImageTrainer::open_run(Progress& progress) {
  started_ = Clock::now();
  if (!leader()) return;
  run_dir_ = create_run_dir(config_.run_dir, config_.model.name + "-" + config_.optimizer.name);
  TrainConfig again = config_;  // another run needs a folder of its own
  again.run_dir.clear();
  log_ = std::make_unique<RunLog>(run_dir_, to_json(again));
  write_skipped(data_, run_dir_);
  // A launcher passes Ctrl-C on as SIGTERM, which it also sends when a rank has failed.
  const std::string ended = uses_mpi(config_) ? "ended by the launcher" : "interrupted";
  end_on_interrupt(ended + "; the run directory is " + run_dir_);
  int64_t state_values = 0;
  for (const OptimizerState& state : replica_->optimizer().state()) state_values += state.values.numel();
  std::ostringstream model, run;
  const Buckets& buckets = replica_->buckets();
  model << buckets.numel() << " in " << buckets.size() << (buckets.size() == 1 ? " bucket" : " buckets")
        << "; optimizer state of this worker: " << human_bytes(4.0 * static_cast<double>(state_values));
  run << total_steps_ << " of " << config_.batch * config_.accumulation * comm_.topology.world() << " images, "
      << steps_per_epoch_ << " an epoch";
  std::vector<std::pair<std::string, std::string>> rows = data_.notes;
  rows.insert(rows.end(), {{"parameters", model.str()},
                           {"steps", run.str()},
                           {"kernels", kernel_library() + ", threads per worker: " + std::to_string(context().threads)},
                           {"run directory", run_dir_}});
  progress.line(summary(config_, rows));
  if (config_.dtype == "bf16" && !native_bf16())
    progress.line("notice: " + kernel_library() +
                  " has no bfloat16 instructions here; --dtype bf16 will be slower than f32");
}

Evaluation ImageTrainer::run(Progress& progress) {
  open_run(progress);
  Evaluation last;
  train_.start_epoch(0);
  for (int64_t e = 0; step_ < total_steps_; ++e) {
    model_->train();
    tally_ = Tally();
    for (int64_t s = 0; s < steps_per_epoch_ && step_ < total_steps_; ++s) {
      ++step_;
      train_step();
      if (config_.check_replicas > 0 && step_ % config_.check_replicas == 0) replica_->check_replicas();
      if (step_ == 1 || step_ % config_.log_every == 0 || step_ == total_steps_) report(progress);
    }
    if (step_ < total_steps_) train_.start_epoch(e + 1);  // its first batches are prepared meanwhile
    const auto before = Clock::now();
    last = evaluate();
    evaluating_s_ += seconds_since(before);
    check(std::isfinite(last.loss), "step ", step_, ": the test loss is ", last.loss, kDiverged);
    if (!leader()) continue;
    log_->evaluation({step_, epoch(), last.loss, last.top1, last.top5});
    std::ostringstream text;
    text << "epoch " << epoch() << (ema_ ? ", averaged weights" : "") << ": test loss " << std::setprecision(4)
         << last.loss << ", top-1 " << percent(last.top1) << ", top-5 " << percent(last.top5) << "  ("
         << human_duration(seconds_since(started_)) << ")";
    progress.line(text.str());
  }
  if (config_.check_replicas > 0) replica_->check_replicas();
  save(last, progress);
  return last;
}

void ImageTrainer::train_step() {
  const CommCount before = comm_.stats->total();
  replica_->begin_step(schedule_.lr(step_), config_.accumulation);
  last_loss_ = 0;
  for (int i = 0; i < config_.accumulation; ++i) {
    const auto asked = Clock::now();
    const std::optional<data::Batch> batch = train_.next();
    tally_.data_wait_s += seconds_since(asked);
    check(batch.has_value(), "step ", step_, ": the loader has no batch left");
    const Var logits = model_->forward(Var(batch->images));
    const Var loss = ops::softmax_cross_entropy(logits, batch->labels, config_.data.label_smoothing);
    const double value = loss.value().item();
    check(std::isfinite(value), "step ", step_, ": the loss is ", value, kDiverged);
    last_loss_ += value / config_.accumulation;
    tally_.correct += static_cast<double>(ops::top_k_correct(logits.value(), batch->labels, 1));
    tally_.samples += static_cast<double>(batch->labels.numel());
    replica_->backward(loss);
  }
  replica_->finish_step();
  if (ema_) ema_->update_buffers(step_);
  const CommCount after = comm_.stats->total();
  tally_.bytes_intra += static_cast<double>(after.bytes_intra - before.bytes_intra);
  tally_.bytes_inter += static_cast<double>(after.bytes_inter - before.bytes_inter);
  ++tally_.steps;
}

// The loss is this step's, averaged over the ranks; accuracy, bytes and rate are of the steps since the last report.
void ImageTrainer::report(Progress& progress) {
  Tensor sums = Tensor::of<double>(
      {last_loss_, tally_.correct, tally_.samples, tally_.bytes_intra, tally_.bytes_inter, tally_.data_wait_s},
      Shape{6});
  comm_.world->all_reduce(sums, Reduce::sum, "metrics/all_reduce");
  if (leader()) {
    const double steps = static_cast<double>(tally_.steps), elapsed = seconds_since(tally_.since);
    const double loss = sums.item(0) / comm_.world->size(), samples = sums.item(2);
    StepMetrics metrics{step_,
                        epoch(),
                        loss,
                        schedule_.lr(step_),
                        samples / elapsed,
                        elapsed / steps,
                        sums.item(3) / steps,
                        sums.item(4) / steps,
                        sums.item(5) / steps / comm_.world->size()};
    if (config_.clip.norm > 0) metrics.grad_norm = replica_->gradient_norm();
    log_->step(metrics);
    const double training_s = seconds_since(started_) - evaluating_s_;
    ProgressState state;
    state.step = step_;
    state.steps = total_steps_;
    state.epoch = epoch();
    state.epochs = (total_steps_ - 1) / steps_per_epoch_ + 1;
    state.loss = loss;
    state.accuracy = sums.item(1) / samples;
    state.samples_per_s = metrics.samples_per_s;
    state.bytes_intra = metrics.bytes_intra;
    state.bytes_inter = metrics.bytes_inter;
    state.seconds_left = training_s / static_cast<double>(step_) * static_cast<double>(total_steps_ - step_);
    progress.update(state);
  }
  tally_ = Tally();
}

// With sync_bn they are equal already, and an average of equal numbers may round.
void ImageTrainer::average_buffers() {
  if (!config_.model.sync_bn) nn::average_buffers(*model_, *comm_.world);
}

Evaluation ImageTrainer::evaluate() {
  average_buffers();
  if (!ema_) return evaluate_model();
  ema_->swap();
  average_buffers();
  const Evaluation result = evaluate_model();
  ema_->swap();
  return result;
}

Evaluation ImageTrainer::evaluate_model() {
  NoGrad no_grad;
  model_->train(false);
  test_.start_epoch(0);
  Tensor sums = Tensor::zeros({4}, DType::f64);
  double* sum = sums.data<double>();
  while (auto batch = test_.next()) {
    const Var logits = model_->forward(Var(batch->images));
    const double samples = static_cast<double>(batch->labels.numel());
    sum[0] += samples * ops::softmax_cross_entropy(logits, batch->labels).value().item();
    sum[1] += static_cast<double>(ops::top_k_correct(logits.value(), batch->labels, 1));
    sum[2] += static_cast<double>(ops::top_k_correct(logits.value(), batch->labels, 5));
    sum[3] += samples;
  }
  model_->train();
  comm_.world->all_reduce(sums, Reduce::sum, "evaluation/all_reduce");
  return {sum[0] / sum[3], sum[1] / sum[3], sum[2] / sum[3]};
}

// Ranks that share a source repeat each other, those in other processes decoded other files.
std::vector<std::string> ImageTrainer::gather_remarks() {
  std::vector<uint8_t> own;  // each remark ends in a zero
  for (const auto& source : {data_.train, data_.test})
    for (const std::string& remark : source->remarks())
      own.insert(own.end(), remark.c_str(), remark.c_str() + remark.size() + 1);
  const Tensor lengths({comm_.world->size()}, DType::i64);
  comm_.world->all_gather(Tensor::of<int64_t>({static_cast<int64_t>(own.size())}, {1}), lengths, "damaged");
  const std::vector<int64_t> sizes = lengths.to_vector<int64_t>();
  const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  if (longest == 0) return {};
  own.resize(static_cast<size_t>(longest));
  const Tensor all({comm_.world->size() * longest}, DType::u8);
  comm_.world->all_gather(Tensor::of(own, {longest}), all, "damaged");
  std::set<std::string> remarks;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const char* text = reinterpret_cast<const char*>(all.data<uint8_t>()) + static_cast<int64_t>(rank) * longest;
    for (const char* end = text + sizes[rank]; text < end; text += std::strlen(text) + 1) remarks.insert(text);
  }
  return {remarks.begin(), remarks.end()};
}

void ImageTrainer::save(const Evaluation& last, Progress& progress) {
  const std::vector<std::string> damaged = gather_remarks();
  if (!leader()) return;
  nn::save_weights(run_dir_ + "/weights.safetensors", *model_);
  if (ema_) {
    ema_->swap();
    nn::save_weights(run_dir_ + "/ema.safetensors", *model_);
    ema_->swap();
  }
  progress.finish();
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < std::min(damaged.size(), kShown); ++i) progress.line("damaged file " + damaged[i]);
  if (damaged.size() > kShown)
    progress.line("and " + std::to_string(damaged.size() - kShown) +
                  (damaged.size() == kShown + 1 ? " more damaged file" : " more damaged files"));
  std::ostringstream text;
  text << "done in " << human_duration(seconds_since(started_)) << ": top-1 " << percent(last.top1) << ", top-5 "
       << percent(last.top5) << ", peak memory of a worker "
       << human_bytes(static_cast<double>(context().pool->stats().peak_bytes_in_use))
       << "; weights, metrics and configuration are in " << run_dir_;
  progress.line(text.str());
}

}  // namespace godwit::apps
