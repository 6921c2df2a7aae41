// The saved configuration of the run that a configuration continues.
#pragma once
#include <memory>
#include <string>

#include "apps/config/config.h"

namespace godwit::apps {

// The newest checkpoint of the run that `config` continues; "" if it continues no run.
std::string continued_checkpoint(const CommonConfig& config);
// The folder or file with the config.json and tokenizer of the initial weights. A checkpoint that has a config.json
// takes precedence over init_weights.
std::string weights_description(const CommonConfig& config);
// Returns `config`, or a copy of it whose init_weights is weights_description().
template <class Config>
std::shared_ptr<const Config> described_by_checkpoint(std::shared_ptr<const Config> config) {
  const std::string folder = weights_description(*config);
  if (folder == config->init_weights) return config;
  auto copy = std::make_shared<Config>(*config);
  copy->init_weights = folder;
  return copy;
}

std::string saved_config_path(const CommonConfig& config);  // run_dir/config.json
// The JSON of this file, also without a checkpoint; "" without `resume` or without the file. Throws CheckpointFailed if
// the file cannot be read, and another Error if it is no JSON object or is of another program.
std::string config_in_run_dir(const CommonConfig& config);
// Equals config_in_run_dir() if `config` continues a run with a checkpoint, otherwise "".
std::string saved_config(const CommonConfig& config);
// The text or number of the option GROUP.NAME in saved_config(); "" if the option is missing.
std::string saved_option(const CommonConfig& config, const std::string& group, const std::string& name);

}  // namespace godwit::apps
