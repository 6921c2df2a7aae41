#include <filesystem>

#include "engine/hash.h"
#include "engine/json_text.h"
#include "engine/text_file.h"
#include "models/config_json-inl.h"

namespace godwit {
namespace {

using nlohmann::json;

constexpr int64_t kMaxConfigMib = 16;  // of a config.json; id2label may be long

json parse(const std::string& path) {
  std::error_code error;
  check(std::filesystem::exists(path, error), path, ": does not exist");
  check(std::filesystem::is_regular_file(path, error), path, ": is not a regular file");
  const std::string text = read_text_file(path, kMaxConfigMib, "; expected a config.json");
  check_json(text, path + ":", {.depth = 32});
  json object = parse_json(text);
  check(object.is_object(), path, ": is not a JSON object");
  return object;
}

std::string config_file(const std::string& path) {
  return std::filesystem::is_directory(path) ? (std::filesystem::path(path) / "config.json").string() : path;
}

}  // namespace

ConfigReader::ConfigReader(const std::string& path) : file_(config_file(path)), object_(parse(file_)) {}

const json* ConfigReader::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

ConfigReader ConfigReader::nested(const char* name) const {
  require(name);
  const json& object = *find(name);
  if (!object.is_object()) wrong(name, object, "must be an object");
  return {file_ + ": " + name, object};
}

void ConfigReader::require(const char* name) const { check(find(name) != nullptr, file_, ": has no ", name); }

void ConfigReader::integer(const char* name, int64_t* to) const {
  if (const json* value = find(name)) {
    if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX))
      wrong(name, *value, "must be an integer");
    *to = value->get<int64_t>();
  }
}

void ConfigReader::size(const char* name, int64_t* to) const {
  if (is_null(name)) wrong(name, nullptr, "must be an integer");
  integer(name, to);
}

void ConfigReader::number(const char* name, double* to) const {
  if (const json* value = find(name)) {
    if (!value->is_number()) wrong(name, *value, "must be a number");
    *to = value->get<double>();
  }
}

void ConfigReader::boolean(const char* name, bool* to) const {
  if (const json* value = find(name)) {
    if (!value->is_boolean()) wrong(name, *value, "must be true or false");
    *to = value->get<bool>();
  }
}

void ConfigReader::text(const char* name, std::string* to) const {
  if (const json* value = find(name)) {
    if (!value->is_string()) wrong(name, *value, "must be a string");
    *to = value->get<std::string>();
  }
}

void ConfigReader::tokens(const char* name, std::vector<int64_t>* to) const {
  if (is_null(name)) to->clear();
  const json* value = find(name);
  if (!value) return;
  to->clear();
  for (const json& id : value->is_array() ? *value : json::array({*value})) {
    if (!id.is_number_integer() || (id.is_number_unsigned() && id.get<uint64_t>() > INT64_MAX))
      wrong(name, *value, "must be an integer or a list of integers");
    to->push_back(id.get<int64_t>());
  }
}

void ConfigReader::only(const char* name, const json& supported, const char* why) const {
  if (const json* value = find(name); value && *value != supported)
    wrong(name, *value, "must be ", dump_json(supported), " (", why, ")");
}

uint64_t hash_config(const nlohmann::ordered_json& object, DType dtype) {
  Hash hash;
  hash.add(dump_json(object, -1, false, nlohmann::ordered_json::error_handler_t::replace));
  hash.add(static_cast<uint64_t>(dtype));
  return hash.value();
}

void write_config_json(const std::string& path, const nlohmann::ordered_json& object) {
  std::string text;
  try {
    text = dump_json(object, 2) + "\n";
  } catch (const nlohmann::ordered_json::exception& error) {
    fail(path, ": a label is not UTF-8: ", printable(error.what()));
  }
  write_text_file(path, text);
}

}  // namespace godwit
