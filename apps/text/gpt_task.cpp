#include "apps/text/gpt_task.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "apps/config/saved_config.h"
#include "apps/report/progress.h"
#include "apps/text/gpt_generate.h"
#include "apps/train/device_sum.h"
#include "apps/train/memory_limit.h"
#include "comm/consistency.h"
#include "comm/host_tensor.h"
#include "engine/check.h"
#include "engine/context.h"

namespace godwit::apps {
namespace {

int64_t eval_batch(const GptConfig& config) {
  constexpr int64_t kBlocks = 16;  // fewer would not use all cores
  return config.eval_batch > 0 ? config.eval_batch : std::max(config.batch, kBlocks);
}

data::TokenBlocks blocks(const GptConfig& config, const data::TokenStream& tokens, const Communicator& comm,
                         bool train) {
  return with_place(train ? "training" : "validation", [&] {
    return data::TokenBlocks(tokens, {.context = config.data.context,
                                      .batch = train ? config.batch : eval_batch(config),
                                      .rank = comm.rank,
                                      .world = comm.topology.world(),
                                      .seed = config.seed,
                                      .train = train});
  });
}

constexpr std::string_view kStep = "step ", kSampleEnd = "\n\n--------\n\n";  // around a sample in samples.txt

// Cuts samples.txt before the first sample of `step` or a later one, or that is incomplete.
void cut_samples(const std::string& path, int64_t step) {
  std::error_code missing;
  if (!std::filesystem::exists(path, missing)) return;
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  size_t kept = 0;
  for (size_t end; (end = text.find(kSampleEnd, kept)) != std::string::npos; kept = end + kSampleEnd.size())
    if (text.compare(kept, kStep.size(), kStep) == 0 &&  // otherwise the separator is part of a sample
        std::strtoll(text.c_str() + kept + kStep.size(), nullptr, 10) >= step)
      break;
  if (kept < text.size()) std::filesystem::resize_file(path, kept);
}

// Bytes of the tokens that a batch predicts. A separator of documents counts as one byte.
double bytes_of(const data::TokenBatch& batch, const data::Tokenizer& tokenizer) {
  size_t bytes = 0;
  for (const int32_t label : batch.labels.span<int32_t>())
    if (label != data::kNoLabel) bytes += tokenizer.is_special(label) ? 1 : tokenizer.token(label).size();
  return static_cast<double>(bytes);
}

void save_tokenizer(const GptData& data, const std::string& folder) {
  data.tokens.tokenizer->save(folder);
  for (const auto& [name, text] : data.companions) {
    std::ofstream out(folder + "/" + name, std::ios::binary);
    out << text;
    check(out.flush().good(), folder, "/", name, ": cannot be written");
  }
}

std::unique_ptr<CausalLM> make_model(const GptConfig& config, const GptData& data, const Communicator& comm) {
  int64_t numel = 0;
  {
    const nn::DeferParameters deferred;  // only counts values
    const std::unique_ptr<CausalLM> model = make_causal_lm(data.model);
    for (const Parameter& parameter : model->parameters()) numel += parameter.var.shape().numel();
  }
  const std::string& folder = config.init_weights;
  check_host_memory(config, comm, folder.empty() ? "model " + config.model_name : folder, numel);
  const auto busy = comm.world->control()->busy();  // a host may read its data much more slowly than another
  return folder.empty() || !continued_checkpoint(config).empty() ? make_causal_lm(data.model)
                                                                 : load_causal_lm(folder, data.model);
}

}  // namespace

GptTask::GptTask(const GptConfig& config, const GptData& data, Communicator& comm)
    : config_(config),
      data_(data),
      comm_(comm),
      train_(blocks(config, data.tokens.train, comm, true)),
      valid_(blocks(config, data.tokens.valid, comm, false)),
      model_(make_model(config, data, comm)) {
  // First the tokenizer, because the number of its tokens is part of the model's configuration.
  check_tokens(*comm.world, data.tokens.tokenizer->fingerprint(), "the tokenizer");
  check_identical(*comm.world, hash(data.model), "the model's configuration", "use the same weights on all ranks");
  check_data(*comm.world, data.tokens.train.hash(), "the training text");
  check_data(*comm.world, data.tokens.valid.hash(), "the validation text");
}

data::TokenBatch GptTask::next(int64_t micro_batch) {
  std::optional<data::TokenBatch> batch = train_.next();
  check(batch.has_value(), "micro-batch ", micro_batch, ": the epoch has no batch left");
  check(micro_batch <= UINT32_MAX, "micro-batch ", micro_batch, ": dropout supports at most 2³² micro-batches");
  return std::move(*batch);
}

Var GptTask::loss(const data::TokenBatch& batch, const DropoutContext* run) const {
  if (run) return model_->training_loss(batch.ids, batch.labels, run);
  return model_->loss(model_->forward(batch.ids), batch.labels, data::kNoLabel);
}

Forward GptTask::forward(int64_t micro_batch) {
  const data::TokenBatch batch = next(micro_batch);
  const DropoutContext run{config_.seed, static_cast<uint32_t>(micro_batch), static_cast<uint32_t>(comm_.rank)};
  return {.loss = loss(batch, &run), .samples = static_cast<double>(batch.predictions)};
}

LoadedBatch GptTask::load_batch(int64_t micro_batch) {
  data::TokenBatch batch = next(micro_batch);
  if (loaded_) {
    loaded_->ids.copy_from(batch.ids);
    loaded_->labels.copy_from(batch.labels);
  } else {
    loaded_ = std::move(batch);
    micro_batch_ = Tensor({1}, DType::u32, kCpu);
  }
  micro_batch_.data<uint32_t>()[0] = static_cast<uint32_t>(micro_batch);
  return {.key = {config_.batch}};
}

Forward GptTask::forward_loaded() {
  const DropoutContext run{config_.seed, 0, static_cast<uint32_t>(comm_.rank), micro_batch_.to(context().device)};
  return {.loss = loss(*loaded_, &run), .samples = static_cast<double>(loaded_->predictions)};
}

Evaluation GptTask::evaluate(const ReadParameters& read, const CheckStop& check_stop) {
  const NoGrad no_grad;
  DeviceSum losses;
  double predictions = 0, bytes = 0;
  valid_.start_epoch(0);
  read([&] {
    while (const std::optional<data::TokenBatch> batch = valid_.next()) {
      check_stop();
      const auto count = static_cast<double>(batch->predictions);
      losses.add(loss(*batch, nullptr).value(), count);
      predictions += count;
      bytes += bytes_of(*batch, *data_.tokens.tokenizer);
    }
  });
  const Tensor sums = cpu_tensor<double>({losses.sum(), predictions, bytes});
  comm_.world->all_reduce(sums, Reduce::sum, "evaluation/all_reduce");
  const double val_loss = sums.item(0) / sums.item(1), perplexity = std::exp(val_loss);
  const double text_bytes = sums.item(2) - static_cast<double>(data_.tokens.added_bytes);
  const double bits_per_byte = sums.item(0) / std::log(2.0) / text_bytes;
  Evaluation result{.metrics = {{"val_loss", val_loss}, {"perplexity", perplexity}, {"bits_per_byte", bits_per_byte}},
                    .text = "validation loss " + with_digits(val_loss) + ", perplexity " + with_digits(perplexity) +
                            ", " + with_digits(bits_per_byte) + " bits per byte"};
  read([&] {
    if (comm_.rank != 0 || !std::isfinite(val_loss)) return;
    const auto busy = comm_.world->control()->busy();  // the other ranks wait
    sample_ = printable_lines(sample_text(*model_, *data_.tokens.tokenizer, config_, check_stop));
    if (!sample_.empty()) result.below = "sample:\n" + sample_ + "\n";
  });
  return result;
}

void GptTask::write_evaluation(const std::string& run_dir, int64_t step) {
  if (sample_.empty()) return;
  const std::string path = run_dir + "/samples.txt";
  cut_samples(path, step);
  std::ofstream out(path, std::ios::app);
  out << kStep << step << "\n" << sample_ << kSampleEnd;
  check(out.flush().good(), path, ": cannot be written");
}

void GptTask::save(const std::string& run_dir, const std::string& which) {
  const std::string folder = run_dir + "/" + (which == "weights" ? "model" : which);
  save_pretrained(folder, *model_);
  save_tokenizer(data_, folder);
}

void GptTask::save_description(const std::string& folder) {
  std::filesystem::create_directories(folder);
  write_causal_lm_config(folder + "/config.json", data_.model);
  save_tokenizer(data_, folder);
}

}  // namespace godwit::apps
