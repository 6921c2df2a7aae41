// The configuration of the run that another configuration continues.
#pragma once
#include <string>

#include "apps/config/config.h"

namespace godwit::apps {

std::string saved_config_path(const CommonConfig& config);  // run_dir/config.json
// The JSON of this file, if `config` continues a run with a checkpoint; otherwise "". Throws for invalid JSON.
std::string saved_config(const CommonConfig& config);
// The text or number of the option GROUP.NAME in saved_config(); "" if it has none.
std::string saved_option(const CommonConfig& config, const std::string& group, const std::string& name);

}  // namespace godwit::apps
