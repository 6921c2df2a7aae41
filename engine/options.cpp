#include "engine/options.h"

#include <charconv>
#include <cmath>

#include "engine/did_you_mean.h"
#include "engine/excerpt.h"
#include "engine/json-inl.h"
#include "engine/json_text.h"

namespace godwit {
namespace {

using nlohmann::json;

template <class T>
bool read_number(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty();
}

bool read_list(std::string text, std::vector<double>& list) {
  if (!text.empty() && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const size_t first = text.find_first_not_of(' ', begin);
    double number;
    if (first >= end || !read_number(text.substr(first, end - first), number)) return false;
    list.push_back(number);
    begin = end + 1;
  }
  return text.empty() || text.back() != ',';
}

std::string number_text(double value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

bool inside(double value, const Range& range) {
  const auto within = [&](double x) {
    return std::isfinite(x) && (range.min_open ? x > range.min : x >= range.min) &&
           (range.max_open ? x < range.max : x <= range.max);
  };
  return within(value) && (!range.as_float || within(static_cast<float>(value)));
}

// Converts command-line text to the type of `ref`. Returns the value unchanged if it cannot be converted.
OptionValue converted(OptionValue value, const OptionRef& ref) {
  const std::string text = std::get<std::string>(value.data);
  double number;
  int64_t integer;
  uint64_t natural;
  std::vector<double> list;
  if (std::holds_alternative<std::string*>(ref) || std::holds_alternative<ChoiceRef>(ref)) return value;
  value.data = std::monostate();
  if (std::holds_alternative<bool*>(ref)) {
    if (text == "true" || text == "false") value.data = text == "true";
  } else if (std::holds_alternative<std::vector<double>*>(ref)) {
    if (read_list(text, list)) value.data = list;
  } else if (read_number(text, integer)) {
    value.data = integer;
  } else if (read_number(text, natural)) {
    value.data = natural;
  } else if (read_number(text, number)) {
    value.data = number;
  }
  return value;
}

// Assigns one value to one member; holds the inputs of its error messages.
struct Assigner {
  const Option& option;
  const OptionValue& value;
  const std::string& subject;

  [[noreturn]] void fail_type(const std::string& expected) const {
    fail(subject, " expects ", expected, ", got ", value.shown);
  }
  // For messages: the method that limits the choices, unless `subject` begins with its name.
  std::string for_method() const {
    return option.method.empty() || subject.starts_with(option.method + ":") ? "" : " for " + option.method;
  }
  const std::string& text() const {
    const auto* text = std::get_if<std::string>(&value.data);
    const bool number = !text && value.data.index() >= 2 && value.data.index() <= 4;  // int64_t, uint64_t or double
    if (number && option.number_or_text) {
      if (option.check_text) option.check_text(value.shown, subject);
      return value.shown;
    }
    if (!text) fail_type(option.number_or_text ? "text or a number" : "text");
    if (text->find('\0') != std::string::npos) fail_type("text without NUL characters");
    if (option.check_text) option.check_text(*text, subject);
    return *text;
  }
  const std::string& choice() const {
    const std::string& word = text();
    if (std::find(option.choices.begin(), option.choices.end(), word) == option.choices.end())
      fail(subject, ": no such ",
           option.name.ends_with(".name") ? option.name.substr(0, option.name.size() - 5) : option.name, " '",
           excerpt(word), "'", for_method(), did_you_mean(word, option.choices));
    return word;
  }

  void operator()(bool* member) const {
    if (!std::holds_alternative<bool>(value.data)) fail_type("true or false");
    *member = std::get<bool>(value.data);
  }
  void operator()(double* member) const {
    double number = NAN;
    if (const auto* d = std::get_if<double>(&value.data)) number = *d;
    if (const auto* i = std::get_if<int64_t>(&value.data)) number = static_cast<double>(*i);
    if (const auto* u = std::get_if<uint64_t>(&value.data)) number = static_cast<double>(*u);
    if (!inside(number, option.range)) {
      Range as_double = option.range;
      as_double.as_float = false;
      fail_type("a finite number" + range_text(option.range) + (inside(number, as_double) ? ", also as float32" : ""));
    }
    *member = number;
  }
  template <class T>
  requires std::is_integral_v<T>
  void operator()(T* member) const {
    const auto* i = std::get_if<int64_t>(&value.data);
    const auto* u = std::get_if<uint64_t>(&value.data);
    const bool fits = (i && std::in_range<T>(*i) && inside(static_cast<double>(*i), option.range)) ||
                      (u && std::in_range<T>(*u) && inside(static_cast<double>(*u), option.range));
    const T number = fits ? static_cast<T>(i ? static_cast<uint64_t>(*i) : *u) : T{};
    const std::vector<std::string>& choices = option.choices;
    const bool chosen = fits && std::find(choices.begin(), choices.end(), std::to_string(number)) != choices.end();
    if (!choices.empty() && !chosen) fail_type("one of " + excerpts(choices, choices.size()) + for_method());
    if (!fits)
      fail_type("an integer" +
                (std::is_same_v<T, uint64_t> ? " from 0 to 18446744073709551615" : range_text(option.range)));
    *member = number;
  }
  void operator()(std::string* member) const {
    *member = option.choices.empty() || option.check_text ? text() : choice();
  }
  void operator()(std::vector<double>* member) const {
    const auto* list = std::get_if<std::vector<double>>(&value.data);
    if (!list) fail_type("a list of numbers");
    for (const double x : *list)
      if (!inside(x, option.range)) fail_type("a list of finite numbers, each" + range_text(option.range));
    *member = *list;
  }
  void operator()(const ChoiceRef& ref) const { ref.set(ref.member, choice()); }
};

}  // namespace

Option& OptionList::append(Option option) {
  option.name = prefix + option.name, option.section = section;
  push_back(std::move(option));
  return back();
}

const Option* OptionList::find(const std::string& name) const {
  for (const Option& option : *this)
    if (option.name == name) return &option;
  return nullptr;
}

std::vector<std::string> OptionList::names() const {
  std::vector<std::string> all;
  for (const Option& option : *this) all.push_back(option.name);
  return all;
}

OptionValue text_value(const std::string& text) {
  return {text, text.empty() ? "nothing" : detail::concat("'", excerpt(text), "'"), true};
}

OptionValue json_value(const std::string& text) {
  const json node = parse_json(text);
  OptionValue value;
  value.shown = excerpt(dump_json(node, -1, false, json::error_handler_t::replace));
  if (node.is_boolean()) value.data = node.get<bool>();
  if (node.is_number_unsigned()) value.data = node.get<uint64_t>();
  else if (node.is_number_integer()) value.data = node.get<int64_t>();
  else if (node.is_number_float()) value.data = node.get<double>();
  if (node.is_string()) value.data = node.get<std::string>();
  if (!node.is_array()) return value;
  std::vector<double> list;
  for (const json& element : node)
    if (element.is_number()) list.push_back(element.get<double>());
  if (list.size() == node.size()) value.data = list;
  return value;
}

void assign(const Option& option, const OptionValue& value, const std::string& subject) {
  const OptionValue typed = value.is_text ? converted(value, option.ref) : value;
  std::visit(Assigner{option, typed, subject}, option.ref);
}

void assign_json(const OptionList& options, const std::string& text, const std::string& subject) {
  check_json(text, subject + ":", {.depth = 4, .unique_names = true});
  const json object = parse_json(text);
  check(object.is_object(), subject, ": expects a JSON object {…}, got ", json_value(text).shown);
  for (const auto& [key, node] : object.items()) {
    const Option* option = options.find(key);
    check(option != nullptr, subject, ": no such option '", excerpt(key), "'", did_you_mean(key, options.names()));
    assign(*option, json_value(dump_json(node)), subject + ": " + key);
  }
}

std::string range_text(const Range& range) {
  if (std::isfinite(range.max) && std::isfinite(range.min))
    return (range.min_open ? " in (" : " in [") + number_text(range.min) + ", " + number_text(range.max) +
           (range.max_open ? ")" : "]");
  if (std::isfinite(range.min)) return (range.min_open ? " above " : " of at least ") + number_text(range.min);
  return "";
}

void check_range(const Option& option, const std::string& subject) {
  OptionValue value{.data = {}, .shown = value_text(option)};
  std::visit(
      [&](const auto& member) {
        using T = std::remove_cvref_t<decltype(member)>;
        if constexpr (std::is_same_v<T, ChoiceRef>) value.data = value.shown;
        else if constexpr (std::is_same_v<T, int*>) value.data = int64_t{*member};
        else value.data = *member;
      },
      option.ref);
  assign(option, value, subject);
}

std::string value_text(const Option& option) {
  return std::visit(
      [](const auto& member) -> std::string {
        using T = std::remove_cvref_t<decltype(member)>;
        if constexpr (std::is_same_v<T, ChoiceRef>) {
          return member.get(member.member);
        } else if constexpr (std::is_same_v<T, bool*>) {
          return *member ? "true" : "false";
        } else if constexpr (std::is_same_v<T, double*>) {
          return number_text(*member);
        } else if constexpr (std::is_same_v<T, std::string*>) {
          return *member;
        } else if constexpr (std::is_same_v<T, std::vector<double>*>) {
          std::string text;
          for (const double x : *member) text.append(text.empty() ? "" : ",").append(number_text(x));
          return text;
        } else {
          return std::to_string(*member);
        }
      },
      option.ref);
}

OptionList AnyOptions::list() const {
  OptionList list;
  if (held_) held_->describe(list);
  return list;
}

void AnyOptions::check(const std::string& subject) const {
  const AnyOptions copy(*this);  // a check assigns each value to itself, and other threads may read this object
  for (const Option& option : copy.list()) check_range(option, subject + ": " + option.name);
  if (held_) held_->check();
}

}  // namespace godwit
