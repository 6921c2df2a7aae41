// The tokenized text of a language model's run.
#pragma once
#include <memory>
#include <vector>

#include "apps/report/rows.h"
#include "apps/text/language_config.h"
#include "data/text/word_vocabulary.h"

namespace godwit::apps {

// Read-only data shared by all ranks of a process.
struct LanguageData {
  data::WordVocabulary vocabulary;
  std::vector<int32_t> train, valid, test;  // test: empty if there is no test text
  Rows notes = {};                          // printed at the start of a run
  data::InvalidUtf8 invalid = {};           // of the texts and of data.vocab
};

// Reads data.path, data.valid, data.test and data.vocab. Throws if a file is missing or has no words, or if a word is
// unknown to a vocabulary without <unk>. A built vocabulary of all words of the training text gives up its two rarest
// words for <unk>, if another text has other words.
std::shared_ptr<const LanguageData> load_language_data(const LanguageConfig& config);

}  // namespace godwit::apps
