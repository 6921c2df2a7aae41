// ConfigReader: reads the fields of a HuggingFace config.json.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/check.h"
#include "engine/dtype.h"
#include "engine/excerpt.h"
#include "engine/json-inl.h"

namespace godwit {

// The fields of one config.json. A field that is null counts as missing. Errors name the file, field and value.
class ConfigReader {
 public:
  explicit ConfigReader(const std::string& path);  // the file, or the folder that contains it

  const std::string& file() const { return file_; }    // path of the file
  const nlohmann::json* find(const char* name) const;  // null if the field is missing
  bool is_null(const char* name) const {               // whether the field exists and is null
    return object_.contains(name) && object_[name].is_null();
  }
  ConfigReader nested(const char* name) const;  // the fields of an object; throws unless the field is an object
  void require(const char* name) const;         // throws if the field is missing
  template <class... Parts>
  [[noreturn]] void wrong(const char* name, const nlohmann::json& value, const Parts&... rule) const {
    fail(file_, ": ", name, " ", detail::concat(rule...), ", got ", excerpt(dump_json(value)));
  }
  // Each function sets *to, unless the field is missing. Throws if the field has another type.
  void integer(const char* name, int64_t* to) const;
  void size(const char* name, int64_t* to) const;  // an integer that may be missing, but not null
  void number(const char* name, double* to) const;
  void boolean(const char* name, bool* to) const;
  void text(const char* name, std::string* to) const;
  void tokens(const char* name, std::vector<int64_t>* to) const;  // an id or a list of ids; null: no ids
  // Throws an Error with the reason `why` if the value of the field differs from `supported`.
  void only(const char* name, const nlohmann::json& supported, const char* why) const;

 private:
  ConfigReader(std::string file, nlohmann::json object) : file_(std::move(file)), object_(std::move(object)) {}

  std::string file_;
  nlohmann::json object_;
};

// The hash of a model's fields and type.
uint64_t hash_config(const nlohmann::ordered_json& object, DType dtype);

// Writes a config.json: either the whole file or nothing.
void write_config_json(const std::string& path, const nlohmann::ordered_json& object);

}  // namespace godwit
