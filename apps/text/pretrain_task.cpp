// PretrainTask: masked language modeling and next-sentence prediction.
#include "apps/train/device_sum.h"
#include "apps/text/text_task.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/host_tensor.h"

namespace godwit::apps {
namespace {

class PretrainTask : public TextTask {
 public:
  PretrainTask(const TextConfig& config, const TextData& data, Communicator& comm,
               std::unique_ptr<BertForPreTraining> net)
      : TextTask(config, data, comm, std::move(net)) {}

  std::string unit() const override { return "samples"; }
  std::vector<std::string> figures() const override {
    return {"test_loss", "mlm_loss", "mlm_accuracy", "nsp_accuracy"};
  }
  Evaluation evaluate(const ReadParameters& read, const CheckStop& check_stop) override;

 private:
  Forward loss(const data::TextBatch& batch, const DropoutContext* run) const override;
  BertForPreTraining::Output output(const data::TextBatch& batch, const DropoutContext* run) const {
    return net<BertForPreTraining>().forward(input_of(batch), batch.masked_positions, run);
  }
};

// Counts correct predictions of masked tokens only.
Forward PretrainTask::loss(const data::TextBatch& batch, const DropoutContext* run) const {
  const BertForPreTraining::Output out = output(batch, run);
  return {.loss = pretraining_loss(out, batch.masked_labels, batch.labels),
          .correct = {ops::top_k_correct(out.prediction_logits.value(), batch.masked_labels, 1)},
          .answers = static_cast<double>(batch.masked_labels.numel())};
}

Evaluation PretrainTask::evaluate(const ReadParameters& read, const CheckStop& check_stop) {
  struct Sums {
    DeviceSum losses, correct;
    double answers = 0;
    void add(const Var& logits, const Tensor& labels) {
      const double rows = static_cast<double>(labels.numel());
      losses.add(ops::softmax_cross_entropy(logits, labels).value(), rows);
      correct.add(ops::top_k_correct(logits.value(), labels, 1));
      answers += rows;
    }
  } words, sentences;
  for_test_batches(read, check_stop, [&](const data::TextBatch& batch) {
    const BertForPreTraining::Output out = output(batch, nullptr);
    words.add(out.prediction_logits, batch.masked_labels);
    sentences.add(out.next_sentence_logits, batch.labels);
  });
  const Tensor sums = cpu_tensor<double>({words.losses.sum(), words.correct.sum(), words.answers,
                                          sentences.losses.sum(), sentences.correct.sum(), sentences.answers});
  comm_.world->all_reduce(sums, Reduce::sum, "evaluation/all_reduce");
  const double mlm_loss = sums.item(0) / sums.item(2), mlm = sums.item(1) / sums.item(2);
  const double nsp = sums.item(4) / sums.item(5);
  return {.loss = mlm_loss + sums.item(3) / sums.item(5),
          .metrics = {{"mlm_loss", mlm_loss}, {"mlm_accuracy", mlm}, {"nsp_accuracy", nsp}},
          .text = "masked words " + percent(mlm) + ", next sentence " + percent(nsp)};
}

}  // namespace

std::unique_ptr<Task> make_pretrain_task(const TextConfig& config, const TextData& data, Communicator& comm) {
  return std::make_unique<PretrainTask>(config, data, comm, make_bert<BertForPreTraining>(data.model));
}

}  // namespace godwit::apps
