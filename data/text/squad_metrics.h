// SQuAD's official scores, those of the reference evaluation script for version 1.1.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/text/squad.h"

namespace godwit::data {

using Answers = std::unordered_map<std::string, std::string>;  // predicted, by the question's id

// A JSON object of ids and texts, plain or gzip. Errors name the file and the id.
Answers read_answers(const std::string& path);

// Lower case, without ASCII punctuation and the words a, an and the, words parted by one space: in Python's senses of
// letter case, word and space.
std::string normalize_answer(std::string_view text);

struct SquadScore {
  double exact_match = 0, f1 = 0;  // percent of all questions
  int64_t questions = 0, unanswered = 0;
};

// A question without a prediction scores 0; answers to unknown questions count for nothing. Throws when there is a
// prediction for a question whose answers the data set does not give.
SquadScore squad_score(const Squad& squad, const Answers& answers);

}  // namespace godwit::data
