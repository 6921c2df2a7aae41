#include "apps/config/saved_config.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/config/assignments.h"
#include "engine/json-inl.h"
#include "optim/checkpoint.h"

namespace godwit::apps {

std::string saved_config_path(const CommonConfig& config) { return config.run_dir + "/config.json"; }

std::string continued_checkpoint(const CommonConfig& config) {
  return config.resume.empty() || config.run_dir.empty() ? "" : newest_checkpoint(config.run_dir + "/checkpoints");
}

std::string weights_description(const CommonConfig& config) {
  const std::string checkpoint = config.init_weights.empty() ? "" : continued_checkpoint(config);
  std::error_code ignored;
  const bool described = !checkpoint.empty() && std::filesystem::exists(checkpoint + "/config.json", ignored);
  return described ? checkpoint : config.init_weights;
}

std::string saved_config(const CommonConfig& config) {
  if (continued_checkpoint(config).empty()) return "";
  const std::string path = saved_config_path(config);
  std::ifstream in(path, std::ios::binary);
  if (!in.is_open()) return "";
  std::ostringstream text;
  text << in.rdbuf();
  check_program(text.str(), path, config.program);
  return text.str();
}

std::string saved_option(const CommonConfig& config, const std::string& group, const std::string& name) {
  const std::string text = saved_config(config);
  if (text.empty()) return "";
  const nlohmann::json saved = parse_json(text);
  if (!saved.is_object() || !saved.contains(group) || !saved.at(group).is_object()) return "";
  const nlohmann::json& options = saved.at(group);
  if (!options.contains(name)) return "";
  const nlohmann::json& value = options.at(name);
  return value.is_string() ? value.get<std::string>() : value.is_number() ? dump_json(value) : "";
}

}  // namespace godwit::apps
