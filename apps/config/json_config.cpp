// JSON files to assignments, and configurations to JSON.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "apps/config/assignments.h"
#include "engine/did_you_mean.h"
#include "engine/excerpt.h"
#include "engine/json-inl.h"
#include "engine/json_text.h"

namespace godwit::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxBytes = 1 << 20;
constexpr int kMaxDepth = 16;  // printing a parsed tree recurses

void collect(const KnownOptions& known, const json& object, const std::string& group, const std::string& subject,
             Assignments& out) {
  for (const auto& [key, node] : object.items()) {
    const std::string name = group.empty() ? key : group + "." + key;
    const Option* option = known.list().find(name);
    check(!option || key.find('.') == std::string::npos, subject, ": no such key '", excerpt(name),
          "'; nest it, as {\"optimizer\": {\"lr\": 0.1}}");
    if (!option && known.is_group(name)) {
      if (node.is_object()) {
        collect(known, node, name, subject, out);
        continue;
      }
      option = known.short_form(name);
      check(option && node.is_string(), subject, ": ", name, " expects an object", option ? " or a text" : "", ", got ",
            json_value(dump_json(node)).shown);
    }
    if (!option) known.fail_unknown(subject, name);
    out.push_back({option->name, option->section, json_value(dump_json(node)), subject + ": " + option->name});
  }
}

}  // namespace

Assignments read_json_text(const KnownOptions& known, const std::string& text, const std::string& subject,
                           const std::string& group) {
  check_json(text, subject + ":", {.depth = kMaxDepth, .unique_names = true});
  const json object = parse_json(text);
  check(object.is_object(), subject, ": expects a JSON object {…}, got ", json_value(text).shown);
  Assignments assignments;
  collect(known, object, group, subject, assignments);
  return assignments;
}

Assignments read_json_file(const KnownOptions& known, const std::string& file) {
  std::error_code ignored;
  check(!std::filesystem::is_directory(file, ignored), file, ": is a folder; --config expects a JSON file");
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  check(in.is_open(), file, ": cannot be read (", std::strerror(errno), "); --config expects a JSON file");
  std::string text(kMaxBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  check(!in.bad(), file, ": reading failed");
  text.resize(static_cast<size_t>(in.gcount()));
  check(text.size() <= kMaxBytes, file, ": longer than 1 MiB; --config expects a small JSON file");
  return read_json_text(known, text, file, "");
}

std::string to_json(const CommonConfig& config, bool with_run_dir) {
  ordered_json root = ordered_json::object();
  for (const Option& option : config.options()) {
    if (!option.inapplicable.empty()) continue;
    const size_t dot = option.name.find('.');
    ordered_json& node =
        dot == std::string::npos ? root[option.name] : root[option.name.substr(0, dot)][option.name.substr(dot + 1)];
    std::visit(
        [&](const auto& member) {
          if constexpr (requires { node = *member; }) node = *member;
          else node = value_text(option);
        },
        option.ref);
  }
  if (!with_run_dir) root["run_dir"] = root["resume"] = "";
  try {
    return dump_json(root, 2);
  } catch (const ordered_json::exception& e) {
    fail("configuration: a text is not valid UTF-8 (", e.what(), ")");
  }
}

}  // namespace godwit::apps
