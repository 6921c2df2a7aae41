// JsonFile: a JSON file whose fields are asked for by name and type; errors name the file and the way to the field.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace godwit::data {

// A value in a JsonFile, which must outlive it. Whatever is asked of a value that does not fit throws an Error.
class JsonNode {
 public:
  const std::string& path() const { return path_; }  // "data[3].paragraphs[0].context"
  std::string where() const;                         // "FILE: data[3].paragraphs[0].context: "

  JsonNode member(const std::string& name) const;                  // of an object
  std::optional<JsonNode> find(const std::string& name) const;     // of an object; none: it is missing or null
  void each(const std::function<void(const JsonNode&)>& f) const;  // the values of an array, in order
  void each_member(const std::function<void(const std::string& name, const JsonNode&)>& f) const;  // of an object
  const std::string& text() const;
  const std::string& text_not_blank() const;
  int64_t integer() const;
  double number() const;
  bool boolean() const;
  bool is_null() const;

 private:
  friend class JsonFile;
  JsonNode(const std::string& file, const void* value, std::string path)
      : file_(file), value_(value), path_(std::move(path)) {}
  [[noreturn]] void expected(const char* kind) const;

  const std::string& file_;
  const void* value_;
  std::string path_;
};

// The file may be gzip. `expected` as in read_file(). At most 1 GiB and 64 levels deep; of two equal keys the last
// counts.
class JsonFile {
 public:
  JsonFile(const std::string& path, const std::string& expected);
  ~JsonFile();
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  const std::string& path() const { return path_; }
  JsonNode root() const;

 private:
  struct Value;
  std::string path_;
  std::unique_ptr<Value> value_;
};

}  // namespace godwit::data
