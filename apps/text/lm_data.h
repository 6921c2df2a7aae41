// The tokenized text for a run of a language model.
#pragma once
#include <memory>
#include <vector>

#include "apps/report/rows.h"
#include "apps/text/lm_config.h"
#include "data/text/word_vocabulary.h"

namespace godwit::apps {

// Read-only data shared by all ranks of a process.
struct LmData {
  data::WordVocabulary vocabulary;
  std::vector<int32_t> train, valid, test;  // test: empty if there is no test text
  Rows notes = {};                          // printed at the start of a run
  data::InvalidUtf8 invalid = {};           // invalid UTF-8 of the texts and of data.vocab
};

// Reads data.path, data.valid, data.test and data.vocab. Throws if a file is missing or has no words, or if a
// vocabulary without <unk> lacks a word. If a built vocabulary has all words of the training text, but not of the other
// texts, <unk> replaces its two rarest words.
std::shared_ptr<const LmData> load_lm_data(const LmConfig& config);

}  // namespace godwit::apps
