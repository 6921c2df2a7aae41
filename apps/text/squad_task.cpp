// SquadTask: extractive question answering. The answer is a span of the context.
#include <cstring>
#include <iomanip>
#include <sstream>

#include "comm/gather.h"
#include "apps/text/text_task.h"
#include "autograd/ops/column.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "data/text/squad_answers.h"

namespace godwit::apps {
namespace {

class SquadTask : public TextTask {
 public:
  SquadTask(const TextConfig& config, const TextData& data, Communicator& comm,
            std::unique_ptr<BertForQuestionAnswering> net)
      : TextTask(config, data, comm, std::move(net)) {}

  std::string unit() const override { return "windows"; }
  std::vector<std::string> figures() const override { return {"em", "f1"}; }
  // Percentages of the official evaluation, on rank 0.
  Evaluation evaluate(const ReadParameters& read, const CheckStop& check_stop) override;
  void write_evaluation(const std::string& run_dir, int64_t /*step*/) override {
    data::write_predictions(run_dir + "/predictions.json", answers_);
    data::write_nbest(run_dir + "/nbest_predictions.json", answers_);
  }

 private:
  Forward loss(const data::TextBatch& batch, const DropoutContext* run) const override;
  // Collective: candidates of the windows of all ranks.
  std::vector<data::Candidate> candidates(const ReadParameters& read, const CheckStop& check_stop);

  std::vector<data::QuestionAnswers> answers_;  // answers of the last evaluation; on rank 0
};

// Returns column `which` of logits [batch·length, 2] (on the CPU) for one row of the batch.
std::vector<float> column(const Tensor& logits, int64_t row, int64_t length, int64_t which) {
  std::vector<float> values(static_cast<size_t>(length));
  const float* from = logits.data<float>() + row * length * 2 + which;
  for (int64_t i = 0; i < length; ++i) values[static_cast<size_t>(i)] = from[2 * i];
  return values;
}

// Counts correct start and end predictions separately.
Forward SquadTask::loss(const data::TextBatch& batch, const DropoutContext* run) const {
  const Var logits = net<BertForQuestionAnswering>().forward(input_of(batch), run);
  const int64_t rows = batch.ids.dim(0), length = batch.ids.dim(1);
  const auto correct = [&](int64_t which, const Tensor& labels) {
    const Tensor scores = ops::column(Var(logits.value()), which).value().view({rows, length});
    return ops::top_k_correct(scores, labels, 1);
  };
  return {.loss = question_answering_loss(logits, batch.starts, batch.ends),
          .correct = {correct(0, batch.starts), correct(1, batch.ends)},
          .answers = 2 * static_cast<double>(rows)};
}

std::vector<data::Candidate> SquadTask::candidates(const ReadParameters& read, const CheckStop& check_stop) {
  const auto& features = static_cast<const data::SquadFeatures&>(*data_.test);
  const data::AnswerOptions options{.best = config_.data.n_best, .longest = config_.data.max_answer};
  std::vector<data::Candidate> own;
  for_test_batches(read, check_stop, [&](const data::TextBatch& batch) {
    const Tensor logits = net<BertForQuestionAnswering>().forward(input_of(batch)).value().to(kCpu);
    const int64_t length = batch.ids.dim(1);
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      const std::vector<data::Candidate> found = data::answer_candidates(
          features, batch.samples[i], column(logits, row, length, 0), column(logits, row, length, 1), options);
      own.insert(own.end(), found.begin(), found.end());
    }
  });
  std::vector<uint8_t> bytes(own.size() * sizeof(data::Candidate));
  if (!own.empty()) std::memcpy(bytes.data(), own.data(), bytes.size());
  std::vector<data::Candidate> all;
  for (const std::vector<uint8_t>& part : gather_bytes(*comm_.world, bytes, "evaluation/all_gather")) {
    const size_t before = all.size();
    all.resize(before + part.size() / sizeof(data::Candidate));
    if (!part.empty()) std::memcpy(all.data() + before, part.data(), part.size());
  }
  return all;
}

Evaluation SquadTask::evaluate(const ReadParameters& read, const CheckStop& check_stop) {
  std::vector<data::Candidate> all = candidates(read, check_stop);
  if (comm_.rank != 0) return {};
  const auto& features = static_cast<const data::SquadFeatures&>(*data_.test);
  answers_ =
      data::best_answers(features, std::move(all), {.best = config_.data.n_best, .longest = config_.data.max_answer});
  const data::SquadScore score = data::squad_score(*data_.test_squad, data::first_answers(answers_));
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << "EM " << score.exact_match << ", F1 " << score.f1;
  return {.metrics = {{"em", score.exact_match}, {"f1", score.f1}}, .text = text.str()};
}

}  // namespace

std::unique_ptr<Task> make_squad_task(const TextConfig& config, const TextData& data, Communicator& comm) {
  return std::make_unique<SquadTask>(config, data, comm, make_bert<BertForQuestionAnswering>(data.model));
}

}  // namespace godwit::apps
