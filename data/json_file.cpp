#include "data/json_file.h"

#include <algorithm>

#include "data/file.h"
#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/json-inl.h"
#include "engine/json_text.h"

namespace godwit::data {
namespace {

using nlohmann::json;

constexpr int kDepth = 64;
// The size of the text. The parsed values need several times as much.
constexpr uint64_t kMostJsonBytes = uint64_t{1} << 30;

const json& as_json(const void* value) { return *static_cast<const json*>(value); }

std::string kind_of(const json& value) {
  if (value.is_string()) return detail::concat('"', excerpt(value.get_ref<const std::string&>()), '"');
  if (value.is_structured()) return value.is_object() ? "an object" : "an array";
  return dump_json(value);  // a number, true, false or null
}

json parse(const std::string& path, const std::vector<uint8_t>& bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  check_json(text, path + ":", {.depth = kDepth});
  return parse_json(text);
}

}  // namespace

struct JsonFile::Value {
  json tree;
};

JsonFile::JsonFile(const std::string& path, const std::string& expected) : path_(path) {
  const std::vector<uint8_t> bytes = read_unpacked(path, expected, kMostJsonBytes);
  check(!bytes.empty(), path, ": is empty, expected ", expected);
  value_ = std::make_unique<Value>(Value{parse(path, bytes)});
}

JsonFile::~JsonFile() = default;

JsonNode JsonFile::root() const { return {path_, &value_->tree, ""}; }

std::string JsonNode::where() const { return file_ + ": " + (path_.empty() ? "" : path_ + ": "); }

void JsonNode::expected(const char* kind) const {
  fail(where(), "expected ", kind, ", found ", kind_of(as_json(value_)));
}

JsonNode JsonNode::member(const std::string& name) const {
  const json& value = as_json(value_);
  if (!value.is_object()) expected("an object");
  JsonNode found(file_, nullptr, path_.empty() ? name : path_ + "." + name);
  const auto place = value.find(name);
  check(place != value.end(), found.where(), "is missing");
  found.value_ = &*place;
  return found;
}

std::optional<JsonNode> JsonNode::find(const std::string& name) const {
  const json& value = as_json(value_);
  if (!value.is_object()) expected("an object");
  const auto place = value.find(name);
  if (place == value.end() || place->is_null()) return std::nullopt;
  return JsonNode(file_, &*place, path_.empty() ? name : path_ + "." + name);
}

void JsonNode::each(const std::function<void(const JsonNode&)>& f) const {
  const json& value = as_json(value_);
  if (!value.is_array()) expected("an array");
  for (size_t i = 0; i < value.size(); ++i) f({file_, &value[i], path_ + "[" + std::to_string(i) + "]"});
}

void JsonNode::each_member(const std::function<void(const std::string&, const JsonNode&)>& f) const {
  const json& value = as_json(value_);
  if (!value.is_object()) expected("an object");
  for (const auto& [name, of] : value.items())
    f(name, {file_, &of, path_.empty() ? excerpt(name) : path_ + "." + excerpt(name)});
}

const std::string& JsonNode::text() const {
  const json& value = as_json(value_);
  if (!value.is_string()) expected("text");
  return value.get_ref<const std::string&>();
}

const std::string& JsonNode::text_not_blank() const {
  const std::string& found = text();
  check(!std::ranges::all_of(found, [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }), where(),
        found.empty() ? "is empty" : "is blank");
  return found;
}

int64_t JsonNode::integer() const {
  const json& value = as_json(value_);
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX))
    expected("an integer");
  return value.get<int64_t>();
}

double JsonNode::number() const {
  const json& value = as_json(value_);
  if (!value.is_number()) expected("a number");
  return value.get<double>();
}

bool JsonNode::boolean() const {
  const json& value = as_json(value_);
  if (!value.is_boolean()) expected("true or false");
  return value.get<bool>();
}

bool JsonNode::is_null() const { return as_json(value_).is_null(); }

bool JsonNode::is_text() const { return as_json(value_).is_string(); }

}  // namespace godwit::data
