// Values into settings: types, ranges, choices; and back to text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

#include "apps/config/program.h"
#include "engine/check.h"
#include "engine/device.h"
#include "engine/excerpt.h"
#include "engine/did_you_mean.h"

namespace godwit::apps {
namespace {

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
    size_t first = text.find_first_not_of(' ', begin);
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

std::string range_text(const Range& range) {
  const bool below = std::isfinite(range.max);
  if (below && std::isfinite(range.min))
    return (range.min_open ? " in (" : " in [") + number_text(range.min) + ", " + number_text(range.max) +
           (range.max_open ? ")" : "]");
  if (std::isfinite(range.min)) return (range.min_open ? " above " : " of at least ") + number_text(range.min);
  return "";
}

bool inside(double value, const Range& range) {
  return std::isfinite(value) && (range.min_open ? value > range.min : value >= range.min) &&
         (range.max_open ? value < range.max : value <= range.max);
}

[[noreturn]] void fail_type(const Assignment& a, const std::string& expected) {
  fail(a.subject, " expects ", expected, ", got ", a.value.shown);
}

template <class T>
void store(T& member, const Assignment& a) {
  const auto& data = a.value.data;
  const Range& range = a.setting->range;
  if constexpr (std::is_same_v<T, bool>) {
    if (!std::holds_alternative<bool>(data)) fail_type(a, "true or false");
    member = std::get<bool>(data);
  } else if constexpr (std::is_same_v<T, double>) {
    double value = NAN;
    if (const auto* d = std::get_if<double>(&data)) value = *d;
    if (const auto* i = std::get_if<int64_t>(&data)) value = static_cast<double>(*i);
    if (const auto* u = std::get_if<uint64_t>(&data)) value = static_cast<double>(*u);
    if (!inside(value, range)) fail_type(a, "a finite number" + range_text(range));
    member = value;
  } else if constexpr (std::is_integral_v<T>) {
    const auto* i = std::get_if<int64_t>(&data);
    const auto* u = std::get_if<uint64_t>(&data);
    const bool fits = (i && std::in_range<T>(*i) && inside(static_cast<double>(*i), range)) ||
                      (u && std::in_range<T>(*u) && inside(static_cast<double>(*u), range));
    if (!fits)
      fail_type(a,
                "an integer" + (std::is_same_v<T, uint64_t> ? " from 0 to 18446744073709551615" : range_text(range)));
    member = static_cast<T>(i ? static_cast<uint64_t>(*i) : *u);
  } else if constexpr (std::is_same_v<T, std::string>) {
    const bool number = std::holds_alternative<double>(data) || std::holds_alternative<int64_t>(data) ||
                        std::holds_alternative<uint64_t>(data);
    if (number && a.setting->may_be_number) {
      member = a.value.shown;
      return;
    }
    const char* expected = a.setting->may_be_number ? "text or a number" : "text";
    if (!std::holds_alternative<std::string>(data)) fail_type(a, expected);
    if (std::get<std::string>(data).find('\0') != std::string::npos) fail_type(a, "text without NUL characters");
    member = std::get<std::string>(data);
  } else {
    if (!std::holds_alternative<std::vector<double>>(data)) fail_type(a, "a list of numbers");
    for (double x : std::get<std::vector<double>>(data))
      if (!inside(x, range)) fail_type(a, "a list of finite numbers, each" + range_text(range));
    member = std::get<std::vector<double>>(data);
  }
}

}  // namespace

Value value_from_text(const Program& program, const Setting& setting, const std::string& text) {
  Value value{text, text.empty() ? "nothing" : detail::concat("'", excerpt(text), "'")};
  const ConfigPtr config = default_config(program);
  const SettingRef ref = setting.member(*config);
  double number;
  int64_t integer;
  uint64_t natural;
  std::vector<double> list;
  if (std::holds_alternative<std::string*>(ref)) return value;
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

namespace {
// Which GPU a worker gets depends on its rank: here it is enough that there are some.
void check_device(const std::string& word, const std::string& subject) {
  if (parse_device(word, subject).is_cuda() && cuda_devices() == 0)
    fail(subject, ": '", word, "' is not available: ", why_no_cuda());
}
}  // namespace

void assign(CommonConfig& config, const Assignment& a) {
  std::visit([&](auto* member) { store(*member, a); }, a.setting->member(config));
  if (!a.setting->choices) return;
  const std::string word = *std::get<std::string*>(a.setting->member(config));
  if (a.setting->path == "device") return check_device(word, a.subject);
  const std::vector<std::string> choices = a.setting->choices();
  for (const std::string& choice : choices)
    if (word == choice) return;
  const std::string& path = a.setting->path;
  const size_t name = path.rfind(".name");
  fail(a.subject, ": no such ", name == std::string::npos ? path : path.substr(0, name), " '", excerpt(word), "'",
       suggestion(word, choices));
}

std::string value_text(const CommonConfig& config, const Setting& setting) {
  return std::visit(
      [](const auto* member) -> std::string {
        using T = std::remove_cvref_t<decltype(*member)>;
        if constexpr (std::is_same_v<T, bool>) {
          return *member ? "true" : "false";
        } else if constexpr (std::is_same_v<T, double>) {
          return number_text(*member);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return *member;
        } else if constexpr (std::is_integral_v<T>) {
          return std::to_string(*member);
        } else {
          std::string text;
          for (double x : *member) text.append(text.empty() ? "" : ",").append(number_text(x));
          return text;
        }
      },
      setting.member(const_cast<CommonConfig&>(config)));  // read alone
}

}  // namespace godwit::apps
