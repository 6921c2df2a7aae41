// The tokenized text for a run, and the matching model configuration.
#pragma once
#include <memory>
#include <string>

#include "apps/report/progress.h"
#include "apps/text/text_tokenizer.h"
#include "apps/train/task.h"
#include "data/text/invalid_utf8.h"
#include "data/text/squad.h"
#include "data/text/text_dataset.h"
#include "models/bert_config.h"

namespace godwit::apps {

// Read-only data shared by all ranks of a process.
struct TextData {
  TextTokenizer tokenizer;
  BertConfig model = {};
  std::string model_name = {};                                 // "bert_mini"; "bert" if read from a config.json
  std::unique_ptr<const data::Squad> train_squad = {}, test_squad = {};  // only for squad; referenced by train and test
  std::unique_ptr<const data::TextDataset> train = {}, test = {};
  data::InvalidUtf8 invalid = {};  // invalid UTF-8 of corpora and tab-separated files
  Rows notes = {};                 // printed at the start of a run
};

// Reads data.path, data.test, data.vocab and init_weights. Throws if a file is missing or malformed, or if vocabulary,
// lengths and model do not match. Reports long work to `progress` if `progress` is not null.
std::shared_ptr<const TextData> load_text_data(const TextConfig& config, Progress* progress);

}  // namespace godwit::apps
