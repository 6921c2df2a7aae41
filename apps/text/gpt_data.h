// The tokens and the model's settings for a run of train_gpt.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "apps/report/rows.h"
#include "apps/text/gpt_config.h"
#include "data/text/token_data.h"

namespace godwit::apps {

// Read-only data shared by all ranks of a process.
struct GptData {
  data::TokenData tokens;
  CausalLMConfig model;  // complete settings
  // Contents of files that are copied from the folder of the initial weights to saved folders, by file name. They are
  // the generation settings and, if the tokenizer comes from that folder, the tokenizer and its settings.
  std::map<std::string, std::string> companions = {};
  Rows notes = {};  // printed at the start of a run
};

// The tokenizer of data.tokenizer, otherwise the tokenizer in the folder of the initial weights. Null if there is
// neither.
std::shared_ptr<const data::Tokenizer> tokenizer_of(const GptConfig& config);

// The settings of the initial weights. Throws if init_weights is not a folder of a supported model.
CausalLMConfig settings_of_weights(const GptConfig& config);

// Returns a notice if the folder of the initial weights has a tokenizer whose ids differ from `tokenizer`, otherwise
// "".
std::string tokenizer_notice(const GptConfig& config, const data::Tokenizer& tokenizer);

// Throws if the tokenizer has more tokens than the initial weights. `model`: settings of the initial weights.
void check_vocabulary(const GptConfig& config, const data::Tokenizer& tokenizer, const CausalLMConfig& model);

// Reads text and tokenizer, and the config.json of the initial weights. Throws if a file is missing or malformed, if
// the tokenizer has more tokens than the weights, or if a block has more tokens than the weights have positions. Also
// throws if the data is text, the initial weights have no tokenizer, and no tokenizer is named.
std::shared_ptr<const GptData> load_gpt_data(const GptConfig& config);

}  // namespace godwit::apps
