// ClassifyTask: sentence classification.
#include "apps/train/device_sum.h"
#include "apps/text/text_task.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/host_tensor.h"

namespace godwit::apps {
namespace {

class ClassifyTask : public TextTask {
 public:
  ClassifyTask(const TextConfig& config, const TextData& data, Communicator& comm,
               std::unique_ptr<BertForSequenceClassification> net)
      : TextTask(config, data, comm, std::move(net)) {}

  std::string unit() const override { return "sentences"; }
  std::vector<std::string> figures() const override { return {"test_loss", "test_accuracy"}; }
  Evaluation evaluate(const ReadParameters& read, const CheckStop& check_stop) override;

 private:
  Forward loss(const data::TextBatch& batch, const DropoutContext* run) const override;
};

Forward ClassifyTask::loss(const data::TextBatch& batch, const DropoutContext* run) const {
  const Var logits = net<BertForSequenceClassification>().forward(input_of(batch), run);
  return {.loss = ops::softmax_cross_entropy(logits, batch.labels),
          .correct = {ops::top_k_correct(logits.value(), batch.labels, 1)},
          .answers = static_cast<double>(batch.labels.numel())};
}

Evaluation ClassifyTask::evaluate(const ReadParameters& read, const CheckStop& check_stop) {
  DeviceSum losses, correct;
  double sentences = 0;
  for_test_batches(read, check_stop, [&](const data::TextBatch& batch) {
    const Forward result = loss(batch, nullptr);
    losses.add(result.loss.value(), result.answers);
    correct.add(result.correct);
    sentences += result.answers;
  });
  const Tensor sums = cpu_tensor<double>({losses.sum(), correct.sum(), sentences});
  comm_.world->all_reduce(sums, Reduce::sum, "evaluation/all_reduce");
  const double* sum = sums.data<double>();
  const double accuracy = sum[1] / sum[2];
  return {.loss = sum[0] / sum[2],
          .metrics = {{"test_accuracy", accuracy}},
          .text = "accuracy " + percent(accuracy)};
}

}  // namespace

std::unique_ptr<Task> make_classify_task(const TextConfig& config, const TextData& data, Communicator& comm) {
  return std::make_unique<ClassifyTask>(config, data, comm, make_bert<BertForSequenceClassification>(data.model));
}

}  // namespace godwit::apps
