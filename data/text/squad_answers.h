// From the logits of a question-answering model to answers: the n best of each question, and the files of them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/text/squad_features.h"
#include "data/text/squad_metrics.h"

namespace godwit::data {

struct AnswerOptions {
  int64_t best = 20;     // starts and ends that are tried for each window, and answers given for each question
  int64_t longest = 30;  // tokens of an answer
};

// An answer that a window allows; plain values, so that ranks can exchange them.
struct Candidate {
  int32_t window, start, end;  // tokens, counted from [CLS]
  float start_logit, end_logit;
};

// All pairs of the window's best starts and ends that lie in its context, in this order, not longer than the longest,
// and whose start has in no other window more context. The logits are those of the window's tokens; more, of padding,
// may follow and count for nothing. Equal logits go in the order of their places. Throws on a logit that is not finite.
std::vector<Candidate> answer_candidates(const SquadFeatures& features, int64_t window,
                                         std::span<const float> start_logits, std::span<const float> end_logits,
                                         const AnswerOptions& options = {});

struct QuestionAnswers {
  struct Entry {
    std::string text;
    double probability, start_logit, end_logit;
  };
  std::string id;
  std::vector<Entry> best;  // at least one; the first is the answer
};

// Of all questions, in the order of the data set; candidates of all windows in any order. Of several candidates with
// one text the best counts. A question without any candidate gets "empty".
std::vector<QuestionAnswers> best_answers(const SquadFeatures& features, std::vector<Candidate> candidates,
                                          const AnswerOptions& options = {});

Answers first_answers(const std::vector<QuestionAnswers>& all);  // for squad_score()

// predictions.json: id → text; nbest_predictions.json: id → [{text, probability, start_logit, end_logit}]. Both replace
// a file as a whole or throw one Error naming it.
void write_predictions(const std::string& path, const std::vector<QuestionAnswers>& all);
void write_nbest(const std::string& path, const std::vector<QuestionAnswers>& all);

}  // namespace godwit::data
