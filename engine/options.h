// Options: named, range-checked fields of a struct, described where the struct is defined. Flags, JSON keys, --help,
// printed configurations and range checks are generated from the descriptions.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "engine/check.h"

namespace godwit {

// The allowed values of an option. By default, every number is allowed.
struct Range {
  // The bounds.
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool min_open = false, max_open = false;  // whether the bound itself is excluded
  bool as_float = false;                    // check the value rounded to float32 as well
};
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();  // no bound
// Any number; [0, 1]; greater than 0; at least 0.
inline constexpr Range kAny{}, kFraction{0, 1}, kPositive{0, kInfinity, true}, kNotNegative{0, kInfinity};
inline constexpr Range kAtLeastOne{1, kInfinity}, kAboveZeroToOne{0, 1, true};  // at least 1; (0, 1]
inline constexpr Range kDecayRate{0, 1, false, true, true};              // decay rate of a moving average in float32
inline constexpr Range kPositiveFloat{0, kInfinity, true, false, true};  // positive and finite in float32

// A field whose values are written as names: an enum, or a method.
struct ChoiceRef {
  void* member;                                          // the field
  std::string (*get)(const void* member);                // its value as text
  void (*set)(void* member, const std::string& choice);  // sets it to one of the choices
};
using OptionRef =  // pointer to the field
    std::variant<bool*, int*, int64_t*, uint64_t*, double*, std::string*, std::vector<double>*, ChoiceRef>;

// One field of an options struct. Holds a pointer into the struct and must not outlive it.
struct Option {
  // JSON key and --set name: "lr". In a program's list, the name includes the group: "optimizer.lr".
  std::string name;
  OptionRef ref;                          // the field
  std::string help;                       // one line, with the unit
  Range range = {};                       // range of a number, and of each number in a list
  std::vector<std::string> choices = {};  // allowed values; for an enum, all or some of its names; empty: any
  std::string method = {};                // method to which the option belongs, for messages; empty: none
  std::string flag = {}, section = {};    // a program's flag "--lr", or empty for --set only; heading in --help
  std::string if_empty = {};              // error message for an empty text after the flag; empty: the usual message
  std::string placeholder = {};           // placeholder of the flag's value in --help: DIR; empty: NAME, N or X
  std::string shown_default = {};         // default in --help, such as "the model's"; empty: the value
  std::string inapplicable = {};          // why this configuration does not read the option; empty if it does
  std::string ignored = {};               // why a value on the command line has no effect; empty if it has one
  bool number_or_text = false;            // whether JSON may give the text as a number, true or false
  bool host_specific = false;             // whether the processes of a run may have different values
  // Checks a text instead of `choices`; for an enum, in addition to `choices`. Throws an Error with `subject`.
  void (*check_text)(const std::string& text, const std::string& subject) = nullptr;

  // Sets `flag` and `placeholder`.
  Option& with_flag(std::string text, std::string value = {}) {
    return flag = std::move(text), placeholder = std::move(value), *this;
  }
  // Sets `shown_default`.
  Option& with_shown_default(std::string text) { return shown_default = std::move(text), *this; }
  Option& with_empty_message(std::string text) { return if_empty = std::move(text), *this; }  // sets `if_empty`
  Option& with_choices(std::vector<std::string> texts) { return choices = std::move(texts), *this; }  // sets `choices`
  Option& differs_by_host() { return host_specific = true, *this; }  // sets host_specific
  Option& or_number() { return number_or_text = true, *this; }  // sets number_or_text
  // Unless `applies`, marks the option as not read in this configuration, with this reason.
  Option& only_if(bool applies, const std::string& reason) {
    if (!applies && inapplicable.empty()) inapplicable = reason;
    return *this;
  }
  // If `contradicted`, a value on the command line is an error with this reason. Values from files are accepted, since
  // a saved configuration also contains values that the user did not set; a notice names values other than the default.
  Option& ignored_if(bool contradicted, const std::string& reason) {
    if (contradicted && ignored.empty()) ignored = reason;
    return *this;
  }
};

// Collects the options of a struct: describe(OptionList&) adds each field. An enum E needs a function
// std::vector<std::string> choices_of(E), found by argument-dependent lookup, which returns the names of its values 0,
// 1, …
class OptionList : public std::vector<Option> {
 public:
  // Adds the field `member` of the struct.
  template <class T>
  Option& add(const std::string& name, T& member, std::string help, Range range = kAny) {
    OptionRef ref;
    std::vector<std::string> choices;
    if constexpr (std::is_enum_v<T>) {
      choices = choices_of(T{});
      ref = ChoiceRef{&member,
                      [](const void* at) {
                        const auto value = static_cast<size_t>(*static_cast<const T*>(at));
                        const std::vector<std::string> names = choices_of(T{});
                        return value < names.size() ? names[value] : std::string();
                      },
                      [](void* at, const std::string& choice) {
                        const std::vector<std::string> names = choices_of(T{});
                        const auto found = std::find(names.begin(), names.end(), choice);
                        *static_cast<T*>(at) = static_cast<T>(found - names.begin());
                      }};
    } else {
      ref = &member;
    }
    return append({.name = name, .ref = ref, .help = std::move(help), .range = range, .choices = std::move(choices)});
  }
  Option& append(Option option);                      // adds prefix and section
  const Option* find(const std::string& name) const;  // null if not found
  const Option* find_flag(const std::string& flag) const;  // null if not found
  std::vector<std::string> names() const;             // names of the options, in order

  std::string prefix, section;  // applied to options that are added later
};

// A value as written by the user. For command-line text, `data` is a string whatever the type of the option.
struct OptionValue {
  // std::monostate: JSON null, an object, or a list that does not contain only numbers.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, std::vector<double>> data;
  std::string shown;     // the text for messages
  bool is_text = false;  // true for command-line text, which is converted to the option's type
};
OptionValue text_value(const std::string& text);  // value from a command line
OptionValue json_value(const std::string& json);  // value from one valid JSON value

// Assigns the value. Throws an Error that begins with `subject` ("--lr") for a wrong type, a number that is out of
// range or non-finite, or a text that is not one of the choices.
void assign(const Option& option, const OptionValue& value, const std::string& subject);
std::string value_text(const Option& option);                        // the value: "1e-08", "true", "birder", "30,60"
std::string range_text(const Range& range);                          // " in [0, 1)", " of at least 1"; "" if unbounded
// Throws like assign() if the option's current value is out of range or not one of the choices.
void check_value(const Option& option, const std::string& subject);

// Reads {"lr": 0.1, …} into the options. Throws an Error that begins with `subject` and names the key.
void assign_json(const OptionList& options, const std::string& json, const std::string& subject);

}  // namespace godwit
