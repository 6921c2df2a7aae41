// SQuAD 1.1: the paragraphs, questions and answers of a JSON file, plain or gzip.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace godwit::data {

struct SquadAnswer {
  std::string text;
  int64_t begin = -1;  // byte of the context where it stands; -1: it is not where the file says

  bool usable() const { return begin >= 0; }
};

struct SquadQuestion {
  std::string id, text;
  size_t context = 0;                // index into Squad::contexts
  std::vector<SquadAnswer> answers;  // as in the file
};

struct Squad {
  std::vector<std::string> contexts;     // UTF-8
  std::vector<SquadQuestion> questions;  // in the order of the file
  std::vector<std::string> misplaced;    // a line about each answer that is not where the file says
};

// The file counts answer_start in code points. An empty answer counts as misplaced. Throws one Error naming the file
// and the field, as data[3].paragraphs[0].qas[2].id, when something is missing, has another type, is blank (contexts,
// questions, ids), when two questions have one id, when there is no question, and when a question has no answer or
// is_impossible (SQuAD 2.0).
Squad read_squad(const std::string& path);

}  // namespace godwit::data
