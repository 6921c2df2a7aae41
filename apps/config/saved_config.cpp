#include "apps/config/saved_config.h"

#include <filesystem>

#include "apps/config/assignments.h"
#include "engine/json-inl.h"
#include "engine/text_file.h"
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

std::string config_in_run_dir(const CommonConfig& config) {
  namespace fs = std::filesystem;
  constexpr const char* kRemedy =
      "; restore this file of the run, or remove it: --resume auto then reads all options from the command line";
  const std::string path = saved_config_path(config);
  std::error_code ignored;
  if (config.resume.empty() || config.run_dir.empty() ||
      fs::symlink_status(path, ignored).type() == fs::file_type::not_found)
    return "";
  const std::string text = [&] {
    try {
      return read_text_file(path, 1, kRemedy);
    } catch (const Error& error) {
      throw CheckpointFailed(error.what());
    }
  }();
  check_program(text, path, config.program, kRemedy);
  return text;
}

std::string saved_config(const CommonConfig& config) {
  return continued_checkpoint(config).empty() ? "" : config_in_run_dir(config);
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
