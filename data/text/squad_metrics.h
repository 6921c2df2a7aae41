// The official scores of SQuAD, as in the reference evaluation script for version 1.1.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/text/squad.h"

namespace godwit::data {

using Answers = std::unordered_map<std::string, std::string>;  // predictions by question id

// Reads a JSON object (id → text), plain or gzip. Errors name the file and the id.
Answers read_answers(const std::string& path);

// Converts to lower case, removes ASCII punctuation and the words a, an and the, and separates words by one space.
// Letter case, words and spaces are defined as in Python.
std::string normalize_answer(std::string_view text);

// Scores of a set of predictions.
struct SquadScore {
  double exact_match = 0, f1 = 0;         // percent of all questions
  int64_t questions = 0, unanswered = 0;  // number of questions in the dataset, and of questions without a prediction
};

// Scores predictions. A question without a prediction scores 0. Predictions for unknown questions are ignored. Throws
// if a question with a prediction has no answers in the dataset.
SquadScore squad_score(const Squad& squad, const Answers& answers);

}  // namespace godwit::data
