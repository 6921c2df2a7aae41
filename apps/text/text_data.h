// The text of a run, tokenised, and the model that fits it.
#pragma once
#include <memory>
#include <string>

#include "apps/report/progress.h"
#include "apps/train/task.h"
#include "apps/text/text_tokenizer.h"
#include "data/text/squad.h"
#include "data/text/text_dataset.h"
#include "models/bert_config.h"

namespace godwit::apps {

// What the ranks of a process share, read-only.
struct TextData {
  TextTokenizer tokenizer;
  BertConfig model = {};
  std::string model_name = {};                                 // "bert_mini"; "bert" for one of a config.json
  std::unique_ptr<const data::Squad> train_squad = {}, test_squad = {};  // squad: what the sources below stand on
  std::unique_ptr<const data::TextDataset> train = {}, test = {};
  Rows notes = {};  // for the start of a run
};

// Reads what data.path, data.test, data.vocab and init_weights name. Throws when something is missing or malformed, or
// when vocabulary, lengths and model do not fit each other. Long work is reported to `progress`, if there is one.
std::shared_ptr<const TextData> load_text_data(const TextConfig& config, Progress* progress);

}  // namespace godwit::apps
