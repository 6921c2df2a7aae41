#include "apps/text/lm_task.h"

#include <cmath>

#include "apps/config/saved_config.h"
#include "apps/report/progress.h"
#include "apps/train/device_sum.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/host_tensor.h"
#include "engine/check.h"
#include "engine/context.h"
#include "engine/hash.h"
#include "nn/weights.h"

namespace godwit::apps {
namespace {

LstmConfig model_config(const LmConfig& config, const LmData& data) {
  LstmConfig model = config.model;
  model.vocab_size = data.vocabulary.size();
  model.seed = config.seed;
  if (config.dtype == "bf16") model.dtype = DType::bf16;
  return model;
}

data::TokenWindows training_windows(const LmConfig& config, const LmData& data, const Communicator& comm) {
  try {
    return {data.train,
            {.length = config.data.length,
             .streams = config.batch,
             .rank = comm.rank,
             .world = comm.topology.world(),
             .train = true}};
  } catch (const Error& error) {
    throw error.with_text(std::string("training: ") + error.what() +
                          "; lower --length, --batch or the number of workers, or use more text");
  }
}

data::TokenWindows evaluation_windows(const LmConfig& config, const std::vector<int32_t>& tokens,
                                      const Communicator& comm) {
  constexpr int64_t kStreams = 20;
  return {tokens,
          {.length = config.data.length,
           .streams = config.eval_batch > 0 ? config.eval_batch : kStreams,
           .rank = comm.rank,
           .world = comm.topology.world(),
           .train = false}};
}

uint64_t hash_of(const std::vector<int32_t>& tokens) {
  Hash hash;
  for (const int32_t token : tokens) hash.add(static_cast<uint64_t>(token));
  return hash.value();
}

}  // namespace

LmTask::LmTask(const LmConfig& config, const LmData& data, Communicator& comm)
    : config_(config),
      data_(data),
      comm_(comm),
      train_(training_windows(config, data, comm)),
      valid_(evaluation_windows(config, data.valid, comm)),
      model_(make_lstm(model_config(config, data))),
      notes_(data.notes),
      state_(model_->zero_state(config.batch)) {
  if (!data.test.empty())
    test_ = std::make_unique<data::TokenWindows>(evaluation_windows(config, data.test, comm));
  check_tokens(*comm.world, data.vocabulary.hash(), "the vocabulary");
  check_data(*comm.world, hash_of(data.train), "the training text");
  check_data(*comm.world, hash_of(data.valid), "the validation text");
  check_data(*comm.world, hash_of(data.test), "the test text");
  if (!config.init_weights.empty() && continued_checkpoint(config).empty()) {
    const auto busy = comm.world->control()->busy();  // a host may read its data much more slowly than another
    nn::load_weights(config.init_weights, *model_);
  }
}

void LmTask::on_run_start(const std::string& run_dir) {
  if (config_.data.vocab.empty()) data::write_word_vocabulary(run_dir + "/vocab.txt", data_.vocabulary);
}

void LmTask::start_epoch(int64_t, int64_t first_batch) {
  train_.start(first_batch);
  if (first_batch > 0) return;  // the checkpoint has restored the state
  for (const ops::LstmState& layer : state_) layer.h.value().zero(), layer.c.value().zero();
}

std::vector<nn::NamedTensor> LmTask::state() {
  std::vector<nn::NamedTensor> all;
  for (size_t i = 0; i < state_.size(); ++i) {
    all.push_back({"lstm/h" + std::to_string(i), state_[i].h.value()});
    all.push_back({"lstm/c" + std::to_string(i), state_[i].c.value()});
  }
  return all;
}

data::TokenWindow LmTask::next(int64_t micro_batch) {
  std::optional<data::TokenWindow> window = train_.next();
  check(window.has_value(), "micro-batch ", micro_batch, ": the epoch has no window left");
  check(micro_batch <= UINT32_MAX, "micro-batch ", micro_batch, ": dropout supports at most 2³² micro-batches");
  return std::move(*window);
}

Forward LmTask::loss(const data::TokenWindow& window, const DropoutContext& run) {
  const LstmLanguageModel::Output out = model_->forward(window.ids, state_, &run);
  carry_state(out.state, state_);
  return {.loss = ops::softmax_cross_entropy(out.logits, window.labels),
          .samples = static_cast<double>(window.predictions)};
}

Forward LmTask::forward(int64_t micro_batch) {
  const data::TokenWindow window = next(micro_batch);
  return loss(window, {config_.seed, static_cast<uint32_t>(micro_batch), static_cast<uint32_t>(comm_.rank)});
}

LoadedBatch LmTask::load_batch(int64_t micro_batch) {
  const data::TokenWindow window = next(micro_batch);
  const int64_t time = window.ids.dim(0);
  const auto [at, is_new] = fixed_.try_emplace(time, window);
  if (!is_new) {
    at->second.ids.copy_from(window.ids);
    at->second.labels.copy_from(window.labels);
  }
  loaded_ = &at->second;
  if (!micro_batch_.defined()) micro_batch_ = Tensor({1}, DType::u32, kCpu);
  micro_batch_.data<uint32_t>()[0] = static_cast<uint32_t>(micro_batch);
  return {.key = {time}};
}

Forward LmTask::forward_loaded() {
  return loss(*loaded_, {config_.seed, 0, static_cast<uint32_t>(comm_.rank), micro_batch_.to(context().device)});
}

std::pair<double, double> LmTask::sum_of_losses(data::TokenWindows& windows, const CheckStop& check_stop) {
  DeviceSum losses;
  double predictions = 0;
  if (windows.streams() == 0) return {0, 0};
  windows.start();
  const LstmLanguageModel::State state = model_->zero_state(windows.streams());
  while (const std::optional<data::TokenWindow> window = windows.next()) {
    check_stop();
    const LstmLanguageModel::Output out = model_->forward(window->ids, state);
    carry_state(out.state, state);
    const double count = static_cast<double>(window->predictions);
    losses.add(ops::softmax_cross_entropy(out.logits, window->labels, 0, data::kNoLabel).value(), count);
    predictions += count;
  }
  return {losses.sum(), predictions};
}

Evaluation LmTask::evaluate(const ReadParameters& read, const CheckStop& check_stop) {
  const NoGrad no_grad;
  std::pair<double, double> valid, test;  // sum of the losses, number of predictions
  read([&] {
    valid = sum_of_losses(valid_, check_stop);
    if (test_) test = sum_of_losses(*test_, check_stop);
  });
  const Tensor sums = cpu_tensor<double>({valid.first, valid.second, test.first, test.second});
  comm_.world->all_reduce(sums, Reduce::sum, "evaluation/all_reduce");
  const double val_loss = sums.item(0) / sums.item(1), perplexity = std::exp(val_loss);
  Evaluation result{.metrics = {{"val_loss", val_loss}, {"perplexity", perplexity}},
                    .text = "validation loss " + with_digits(val_loss) + ", perplexity " + with_digits(perplexity)};
  if (!test_) return result;
  result.loss = sums.item(2) / sums.item(3);
  const double test_perplexity = std::exp(*result.loss);
  result.metrics.emplace_back("test_perplexity", test_perplexity);
  result.text += ", test perplexity " + with_digits(test_perplexity);
  return result;
}

void LmTask::save(const std::string& run_dir, const std::string& which) {
  nn::save_weights(run_dir + "/" + which + ".safetensors", *model_);
}

}  // namespace godwit::apps
