// Converts JSON to assignments, and configurations to JSON.
#include "apps/config/assignments.h"
#include "engine/excerpt.h"
#include "engine/json-inl.h"
#include "engine/json_text.h"

namespace godwit::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kProgram = "program";  // key of the program's name in the file of a configuration

void collect(const KnownOptions& known, const json& object, const std::string& group, const std::string& subject,
             Assignments& out) {
  for (const auto& [key, node] : object.items()) {
    const std::string name = group.empty() ? key : group + "." + key;
    check(key.find('.') == std::string::npos || !known.list().find(name), subject, ": no such key '", excerpt(name),
          "'; nest the key, for example {\"optimizer\": {\"lr\": 0.1}}");
    if (node.is_object() && known.is_group(name)) {
      collect(known, node, name, subject, out);
      continue;
    }
    const OptionValue value = json_value(dump_json(node));
    const Option& option = known.at(subject, name, value);
    out.push_back({option.name, value, subject + ": " + option.name});
  }
}

}  // namespace

Assignments read_json(const KnownOptions& known, const std::string& text, const std::string& subject,
                      const std::string& group) {
  check_json(text, subject + ":", {.depth = 16, .unique_names = true});
  json object = parse_json(text);
  if (group.empty()) object.erase(kProgram);
  Assignments assignments;
  collect(known, object, group, subject, assignments);
  return assignments;
}

void check_program(const std::string& text, const std::string& subject, const std::string& program,
                   const std::string& remedy) {
  try {
    check_json(text, subject + ":", {.depth = 16, .unique_names = true});
  } catch (const Error& error) {
    throw error.with_text(error.what() + remedy);
  }
  const json object = parse_json(text);
  check(object.is_object(), subject, ": expects a JSON object {…}, got ", json_value(text).shown, remedy);
  if (!object.contains(kProgram)) return;
  const json& name = object.at(kProgram);
  check(name.is_string(), subject, ": program expects a name such as \"", program, "\", got ",
        excerpt(dump_json(name)));
  const std::string other = excerpt(name.get<std::string>());
  check(name == program, subject, ": was written by ", other, ", and ", program, " cannot read it; use ", other);
}

std::string to_json(const CommonConfig& config, bool with_run_dir) {
  ordered_json root = ordered_json::object();
  root[kProgram] = config.program;
  for (const Option& option : config.options()) {
    if (!option.inapplicable.empty()) continue;
    std::string path = "/" + option.name;
    std::replace(path.begin(), path.end(), '.', '/');
    ordered_json& node = root[ordered_json::json_pointer(path)];
    std::visit(
        [&](const auto& member) {
          if constexpr (requires { node = *member; }) node = *member;
          else node = value_text(option);
        },
        option.ref);
  }
  if (!with_run_dir) root["run_dir"] = root["resume"] = "";
  return dump_json(root, 2);
}

}  // namespace godwit::apps
