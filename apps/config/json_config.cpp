#include "apps/config/json_config.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/json_text.h"

namespace godwit::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxBytes = 1 << 20;
constexpr int kMaxDepth = 16;  // what works on a parsed tree recurses (dump)

std::string joined(const std::string& group, const std::string& key) { return group.empty() ? key : group + "." + key; }

// The parser itself keeps the last of two equal keys and nests without limit.
json parse(const std::string& text, const std::string& subject) {
  check_json(text, subject + ":", {.depth = kMaxDepth, .unique_names = true});
  return json::parse(text);
}

Value to_value(const json& node) {
  Value value;
  value.shown = excerpt(node.dump(-1, ' ', false, json::error_handler_t::replace));
  if (node.is_boolean()) value.data = node.get<bool>();
  if (node.is_number_unsigned()) {
    value.data = node.get<uint64_t>();
  } else if (node.is_number_integer()) {
    value.data = node.get<int64_t>();
  } else if (node.is_number_float()) {
    value.data = node.get<double>();
  }
  if (node.is_string()) value.data = node.get<std::string>();
  if (node.is_array()) {
    std::vector<double> list;
    for (const json& element : node)
      if (element.is_number()) list.push_back(element.get<double>());
    if (list.size() == node.size()) value.data = list;
  }
  return value;
}

void collect(const Program& program, const json& object, const std::string& group, const std::string& subject,
             std::vector<Assignment>& out) {
  for (const auto& [key, node] : object.items()) {
    const std::string path = joined(group, key);
    if (const Setting* setting = find_setting(program, path)) {
      if (key.find('.') != std::string::npos)
        fail(subject, ": no such key '", excerpt(path), "'; nest it, as {\"optimizer\": {\"lr\": 0.1}}");
      out.push_back({setting, to_value(node), subject + ": " + path});
    } else if (is_group(program, path) && node.is_object()) {
      collect(program, node, path, subject, out);
    } else if (is_group(program, path)) {
      const Setting* name = short_form(program, path);
      if (!name || !node.is_string())
        fail(subject, ": ", path, " expects an object", name ? " or a text" : "", ", got ", to_value(node).shown);
      out.push_back({name, to_value(node), subject + ": " + path});
    } else {
      fail_unknown_key(program, subject, path);
    }
  }
}

}  // namespace

std::vector<Assignment> read_json_text(const Program& program, const std::string& text, const std::string& subject,
                                       const std::string& group) {
  const json object = parse(text, subject);
  if (!object.is_object()) fail(subject, ": expects a JSON object {…}, got ", to_value(object).shown);
  std::vector<Assignment> assignments;
  collect(program, object, group, subject, assignments);
  return assignments;
}

std::vector<Assignment> read_json_file(const Program& program, const std::string& file) {
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
  return read_json_text(program, text, file, "");
}

std::string to_json(const Program& program, const CommonConfig& config, bool with_run_dir) {
  ordered_json root = ordered_json::object();
  for (const Setting& setting : program.settings) {
    if (!applies(program, config, setting)) continue;
    const size_t dot = setting.path.find('.');
    ordered_json& node =
        dot == std::string::npos ? root[setting.path] : root[setting.path.substr(0, dot)][setting.path.substr(dot + 1)];
    std::visit([&](const auto* member) { node = *member; }, setting.member(const_cast<CommonConfig&>(config)));
  }
  if (!with_run_dir) root["run_dir"] = "";
  try {
    return root.dump(2);
  } catch (const ordered_json::exception& e) {
    fail("configuration: a text is not valid UTF-8 (", e.what(), ")");
  }
}

}  // namespace godwit::apps
