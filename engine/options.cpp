#include "engine/options.h"

#include <charconv>
#include <cmath>
#include <concepts>

#include "engine/did_you_mean.h"
#include "engine/excerpt.h"
#include "engine/json-inl.h"
#include "engine/json_text.h"
#include "engine/utf8.h"

namespace godwit {
namespace {

using nlohmann::json;

// Parses command-line text. Returns false if the text is not a T.
template <class T>
bool from_text(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty();
}

bool from_text(const std::string& text, bool& value) { return (value = text == "true") || text == "false"; }

bool from_text(std::string text, std::vector<double>& list) {
  if (!text.empty() && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const size_t first = text.find_first_not_of(' ', begin);
    double number;
    if (first >= end || !from_text(text.substr(first, end - first), number)) return false;
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

template <class T>
bool contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Reads a value of the field's type T, and checks it against range and choices. Holds the inputs of error messages.
struct OptionChecker {
  const Option& option;
  const std::string& shown;  // the value
  const std::string& subject;

  // Returns the value as a T. Throws if the value has another type or T cannot represent it. For double, returns NaN
  // instead, which check() refuses.
  template <class T>
  T read(const OptionValue& value) const {
    const auto* text = std::get_if<std::string>(&value.data);
    const auto* i = std::get_if<int64_t>(&value.data);
    const auto* u = std::get_if<uint64_t>(&value.data);
    const auto* d = std::get_if<double>(&value.data);
    T result{};
    if constexpr (std::is_same_v<T, std::string>) {
      if (text) return *text;
      if (option.number_or_text && (i || u || d || std::holds_alternative<bool>(value.data))) return shown;
      fail_type(option.number_or_text ? "text or a number" : "text");
    } else if (value.is_text && from_text(*text, result)) {
      if constexpr (std::is_same_v<T, double>) result += 0.0;  // −0 becomes 0
      return result;
    } else if constexpr (std::is_same_v<T, double>) {
      return d ? *d + 0.0 : i ? static_cast<double>(*i) : u ? static_cast<double>(*u) : NAN;
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (i && std::in_range<T>(*i)) return static_cast<T>(*i);
      if (u && std::in_range<T>(*u)) return static_cast<T>(*u);
      fail_integer<T>();
    } else {
      if (const T* same = std::get_if<T>(&value.data)) return *same;
      fail_type(std::is_same_v<T, bool> ? "true or false" : "a list of numbers");
    }
  }

  void check(bool) const {}
  void check(double number) const {
    if (inside(number, option.range)) return;
    Range as_double = option.range;
    as_double.as_float = false;
    fail_type("a finite number" + range_text(option.range) + (inside(number, as_double) ? ", also as float32" : ""));
  }
  template <std::integral T>
  void check(T number) const {
    const bool chosen = option.choices.empty() || contains(option.choices, std::to_string(number));
    if (!chosen || !inside(static_cast<double>(number), option.range)) fail_integer<T>();
  }
  void check(const std::string& text) const {
    if (text.find('\0') != std::string::npos) fail_type("text without NUL characters");
    if (!is_utf8(text)) fail_type("text in UTF-8");
    if (option.check_text) option.check_text(text, subject);
    if (option.check_text && !std::holds_alternative<ChoiceRef>(option.ref)) return;
    if (option.choices.empty() || contains(option.choices, text)) return;
    const std::string name = option.name.substr(0, option.name.rfind(".name"));
    fail(subject, ": no such ", name, " '", excerpt(text), "'", for_method(), did_you_mean(text, option.choices));
  }
  void check(const std::vector<double>& list) const {
    for (const double x : list)
      if (const std::string range = range_text(option.range); !inside(x, option.range))
        fail_type("a list of finite numbers" + (range.empty() ? "" : ", each" + range));
  }

 private:
  [[noreturn]] void fail_type(const std::string& expected) const {
    fail(subject, " expects ", expected, ", got ", shown);
  }
  template <class T>
  [[noreturn]] void fail_integer() const {
    if (!option.choices.empty()) fail_type("one of " + excerpts(option.choices, option.choices.size()) + for_method());
    fail_type("an integer" +
              (std::is_same_v<T, uint64_t> ? " from 0 to 18446744073709551615" : range_text(option.range)));
  }
  // " for NAME" if the method NAME limits the choices and `subject` does not begin with NAME.
  std::string for_method() const {
    return option.method.empty() || subject.starts_with(option.method + ":") ? "" : " for " + option.method;
  }
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

const Option* OptionList::find_flag(const std::string& flag) const {
  for (const Option& option : *this)
    if (!option.flag.empty() && option.flag == flag) return &option;
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
  const OptionChecker checker{option, value.shown, subject};
  const auto checked = [&]<class T>(std::type_identity<T>) {
    T read = checker.read<T>(value);
    checker.check(read);
    return read;
  };
  std::visit(
      [&]<class M>(const M& member) {
        if constexpr (std::is_same_v<M, ChoiceRef>)
          member.set(member.member, checked(std::type_identity<std::string>()));
        else *member = checked(std::type_identity<std::remove_pointer_t<M>>());
      },
      option.ref);
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

void check_value(const Option& option, const std::string& subject) {
  const OptionChecker checker{option, value_text(option), subject};
  std::visit(
      [&]<class M>(const M& member) {
        if constexpr (std::is_same_v<M, ChoiceRef>) checker.check(member.get(member.member));
        else checker.check(*member);
      },
      option.ref);
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

}  // namespace godwit
