// SQuAD 1.1: reads paragraphs, questions and answers from a JSON file, plain or gzip.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace godwit::data {

// An answer given by the dataset.
struct SquadAnswer {
  std::string text;    // text in the file
  int64_t begin = -1;  // byte offset in the context; -1 if the answer is not at the position given by the file

  bool usable() const { return begin >= 0; }  // whether the position is valid
};

// A question about a context.
struct SquadQuestion {
  std::string id, text;              // unique id; text of the question
  size_t context = 0;                // index into Squad::contexts
  std::vector<SquadAnswer> answers;  // in file order
};

// A SQuAD dataset.
struct Squad {
  std::vector<std::string> contexts;     // UTF-8
  std::vector<SquadQuestion> questions;  // in file order
  std::vector<std::string> misplaced;    // one line per answer that is not at the position given by the file
};

// Reads a file, in which answer_start counts code points. An empty answer counts as misplaced. Throws one Error that
// names the file and the field (data[3].paragraphs[0].qas[2].id) if a field is missing, has another type or is blank
// (contexts, questions, ids), if two questions have the same id, if there is no question, if a question has no answer,
// or if a question is marked is_impossible (SQuAD 2.0).
Squad read_squad(const std::string& path);

}  // namespace godwit::data
