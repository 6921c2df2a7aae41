// Converts the logits of a question-answering model into the n best answers per question. Writes the answers to files.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/text/squad_features.h"
#include "data/text/squad_metrics.h"

namespace godwit::data {

// Limits of the search for answers.
struct AnswerOptions {
  int64_t best = 20;     // number of starts and ends tried per window, and of answers returned per question
  int64_t longest = 30;  // maximum number of tokens in an answer
};

// A possible answer within a window. Trivially copyable, for exchange between ranks.
struct Candidate {
  int32_t window, start, end;    // token positions, counted from [CLS]
  float start_logit, end_logit;  // logits of the model
};

// Returns all pairs (start, end) of the window's best starts and ends with start ≤ end, both in the context and at most
// `longest` tokens long. Skips a start that has more context in another window. Logits beyond the window's tokens
// (padding) are ignored. Ties are ordered by position. Throws on a non-finite logit.
std::vector<Candidate> answer_candidates(const SquadFeatures& features, int64_t window,
                                         std::span<const float> start_logits, std::span<const float> end_logits,
                                         const AnswerOptions& options = {});

// Answers to one question.
struct QuestionAnswers {
  struct Entry {  // one answer
    std::string text;                            // text of the answer
    double probability, start_logit, end_logit;  // softmax over the entries; logits of start and end
  };
  std::string id;           // id of the question
  std::vector<Entry> best;  // at least one; the first is the best answer
};

// The answers to all questions, in dataset order. `candidates` may be in any order of windows. Of several candidates
// with equal text, the best one is kept. A question without a candidate gets the answer "empty".
std::vector<QuestionAnswers> best_answers(const SquadFeatures& features, std::vector<Candidate> candidates,
                                          const AnswerOptions& options = {});

Answers first_answers(const std::vector<QuestionAnswers>& all);  // the best answer of each question, for squad_score()

// Write predictions.json (id → text) and nbest_predictions.json (id → [{text, probability, start_logit, end_logit}]).
// Both functions write atomically. They throw one Error that names the file on failure.
void write_predictions(const std::string& path, const std::vector<QuestionAnswers>& all);
void write_nbest(const std::string& path, const std::vector<QuestionAnswers>& all);  // like write_predictions()

}  // namespace godwit::data
