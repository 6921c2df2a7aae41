#include "apps/text/text_task.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "apps/config/saved_config.h"
#include "apps/train/loader.h"
#include "comm/consistency.h"
#include "engine/check.h"
#include "engine/clock.h"
#include "engine/profile.h"
#include "models/pretrained.h"

namespace godwit::apps {
namespace {

int64_t eval_batch(const TextConfig& config) {
  constexpr int64_t kEvaluated = 32;  // samples per batch; smaller batches of short samples would not use all cores
  return config.eval_batch > 0 ? config.eval_batch : std::max(config.batch, kEvaluated);
}

}  // namespace

TextTask::TextTask(const TextConfig& config, const TextData& data, Communicator& comm,
                   std::unique_ptr<BertModule> model)
    : config_(config),
      data_(data),
      comm_(comm),
      train_(*data.train, loader_options(config, config.data, comm, true, 0), config.data.window),
      test_(*data.test, loader_options(config, config.data, comm, false, eval_batch(config)), config.data.window),
      model_(std::move(model)),
      notes_(data.notes) {
  // First the vocabulary, because its size is part of the model's configuration.
  check_tokens(*comm.world, data.tokenizer.pieces.vocabulary().hash(), "the vocabulary");
  check_identical(*comm.world, hash(model_->config()), "the model's configuration (config.json)",
                  "use the same weights on all ranks");
  check_data(*comm.world, data.train->hash(), "the training data");
  check_data(*comm.world, data.test->hash(), "the test data");
  if (!config.init_weights.empty() && continued_checkpoint(config).empty()) {
    const auto busy = comm.world->control()->busy();  // a host may read its data much more slowly than another
    notes_.push_back({"weights", load_pretrained(config.init_weights, *model_).str()});
  }
}

void TextTask::on_run_start(const std::string& run_dir) {
  if (data_.tokenizer.vocabulary.empty())
    data::write_vocabulary(run_dir + "/vocab.txt", data_.tokenizer.pieces.vocabulary());
}

data::TextBatch TextTask::next(int64_t micro_batch, double& waited) {
  const ProfileRange range("data wait");
  const auto asked = Clock::now();
  std::optional<data::TextBatch> batch = train_.next();
  waited = seconds_since(asked);
  check(batch.has_value(), "micro-batch ", micro_batch, ": the loader has no batch left");
  check(micro_batch <= UINT32_MAX, "micro-batch ", micro_batch, ": dropout supports at most 2³² micro-batches");
  return std::move(*batch);
}

Forward TextTask::loss_with(const DropoutContext& run, const data::TextBatch& batch) const {
  Forward result = loss(batch, &run);
  result.samples = static_cast<double>(batch.samples.size());
  return result;
}

Forward TextTask::forward(int64_t micro_batch) {
  double waited = 0;
  const data::TextBatch batch = next(micro_batch, waited);
  Forward result =
      loss_with({config_.seed, static_cast<uint32_t>(micro_batch), static_cast<uint32_t>(comm_.rank)}, batch);
  result.data_wait_s = waited;
  return result;
}

LoadedBatch TextTask::load_batch(int64_t micro_batch) {
  LoadedBatch loaded;
  data::TextBatch batch = next(micro_batch, loaded.data_wait_s);
  const auto tensors = [](data::TextBatch& of) {
    return std::array{&of.ids,    &of.token_type_ids, &of.mask,             &of.labels,
                      &of.starts, &of.ends,           &of.masked_positions, &of.masked_labels};
  };
  for (const Tensor* x : tensors(batch))
    if (x->defined()) loaded.key.insert(loaded.key.end(), x->shape().begin(), x->shape().end());
  const auto [at, is_new] = fixed_.try_emplace(loaded.key, batch);
  if (!is_new)
    for (size_t i = 0; i < tensors(batch).size(); ++i)
      if (const Tensor& x = *tensors(batch)[i]; x.defined()) tensors(at->second)[i]->copy_from(x);
  fetched_ = &at->second;
  if (!micro_batch_.defined()) micro_batch_ = Tensor({1}, DType::u32, kCpu);
  micro_batch_.data<uint32_t>()[0] = static_cast<uint32_t>(micro_batch);
  return loaded;
}

Forward TextTask::forward_loaded() {
  return loss_with({config_.seed, 0, static_cast<uint32_t>(comm_.rank), micro_batch_.to(context().device)}, *fetched_);
}

void TextTask::for_test_batches(const ReadParameters& read, const CheckStop& check_stop,
                                const std::function<void(const data::TextBatch&)>& f) {
  const NoGrad no_grad;
  test_.start_epoch(0);
  read([&] {
    while (const std::optional<data::TextBatch> batch = test_.next()) {
      check_stop();
      f(*batch);
    }
  });
}

void TextTask::save(const std::string& run_dir, const std::string& which) {
  const std::string folder = run_dir + "/" + (which == "weights" ? "model" : which);
  save_pretrained(folder, *model_);
  save_tokenizer(folder, data_.tokenizer);
}

void TextTask::save_description(const std::string& folder) {
  std::filesystem::create_directories(folder);
  write_bert_config(folder + "/config.json", model_->config(), model_->architecture());
  save_tokenizer(folder, data_.tokenizer);
}

TextInput input_of(const data::TextBatch& batch) { return {batch.ids, batch.token_type_ids, batch.mask}; }

std::unique_ptr<Task> make_text_task(const TextConfig& config, const TextData& data, Communicator& comm) {
  if (config.task == "squad") return make_squad_task(config, data, comm);
  if (config.task == "classify") return make_classify_task(config, data, comm);
  return make_pretrain_task(config, data, comm);
}

}  // namespace godwit::apps
