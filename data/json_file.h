// JsonFile: a JSON file with typed access to its fields. Errors name the file and the path of the field.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace godwit::data {

// A value in a JsonFile. The JsonFile must outlive the node. Accessors throw an Error if the value has another type.
class JsonNode {
 public:
  const std::string& path() const { return path_; }  // "data[3].paragraphs[0].context"
  std::string where() const;                         // "FILE: data[3].paragraphs[0].context: "

  JsonNode member(const std::string& name) const;                  // object member or null; throws if missing
  std::optional<JsonNode> find(const std::string& name) const;     // object member; none if missing or null
  void each(const std::function<void(const JsonNode&)>& f) const;  // visits the values of an array, in order
  // Visits the members of an object.
  void each_member(const std::function<void(const std::string& name, const JsonNode&)>& f) const;
  const std::string& text() const;            // a string
  const std::string& text_not_blank() const;  // a string that contains more than white space
  int64_t integer() const;                    // an integer; also throws if it exceeds int64
  double number() const;                      // a number
  bool boolean() const;                       // true or false
  bool is_null() const;                       // whether the value is null; never throws
  bool is_text() const;                       // whether the value is a string; never throws

 private:
  friend class JsonFile;
  JsonNode(const std::string& file, const void* value, std::string path)
      : file_(file), value_(value), path_(std::move(path)) {}
  [[noreturn]] void expected(const char* kind) const;

  const std::string& file_;
  const void* value_;
  std::string path_;
};

// The file may be gzip. `expected`: as in read_file(). Limits: 1 GiB, 64 levels. If several keys are equal, the last
// one is used.
class JsonFile {
 public:
  // Reads and parses the file. Throws an Error that names the file on failure.
  JsonFile(const std::string& path, const std::string& expected);
  ~JsonFile();
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  const std::string& path() const { return path_; }  // path of the file
  JsonNode root() const;                             // the outermost value

 private:
  struct Value;
  std::string path_;
  std::unique_ptr<Value> value_;
};

}  // namespace godwit::data
