#include "engine/json_text.h"

#include <set>
#include <vector>

#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/json-inl.h"

namespace godwit {
namespace {

using nlohmann::json;

class Checker : public nlohmann::json_sax<json> {
 public:
  Checker(const std::string& subject, const JsonRules& rules) : subject_(subject), rules_(rules) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (!rules_.unique_names) return true;
    Level& object = open_.back();
    if (!object.names.insert(name).second) {
      object.name = name;
      fail(subject_, " names \"", way(), "\" twice");
    }
    object.name = name;
    return true;
  }

  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    std::string what = error.what();  // "[json.exception.parse_error.101] parse error at line 3, column 5: …"
    if (const size_t bracket = what.find("] "); bracket != std::string::npos) what = what.substr(bracket + 2);
    if (what.size() > 300) what = excerpt(what, 150) + " " + what.substr(what.size() - 100);  // quotes the input
    fail(subject_, " is not valid JSON: ", printable(what));
  }

 private:
  struct Level {
    std::set<std::string> names;
    std::string name;  // name of the current member
  };

  bool open() {
    if (std::ssize(open_) == rules_.depth) fail(subject_, " is nested more than ", rules_.depth, " levels deep");
    open_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  // "optimizer.lr"
  std::string way() const {
    std::string text;
    for (const Level& level : open_) text += (text.empty() || level.name.empty() ? "" : ".") + level.name;
    return excerpt(text);
  }

  const std::string& subject_;
  const JsonRules& rules_;
  std::vector<Level> open_;
};

}  // namespace

void check_json(std::string_view text, const std::string& subject, const JsonRules& rules) {
  const size_t zero = text.find('\0');  // the parser ends there and ignores the rest
  check(zero == std::string_view::npos, subject, " is not valid JSON: byte ", zero + 1, " is 0");
  Checker checker(subject, rules);
  json::sax_parse(text.begin(), text.end(), &checker);
}

json parse_json(std::string_view text) { return json::parse(text); }

std::string dump_json(const json& value, int indent, bool ascii, json::error_handler_t invalid_utf8) {
  return value.dump(indent, ' ', ascii, invalid_utf8);
}

std::string dump_json(const nlohmann::ordered_json& value, int indent, bool ascii, json::error_handler_t invalid_utf8) {
  return value.dump(indent, ' ', ascii, invalid_utf8);
}

}  // namespace godwit
