// Methods: implementations that a user selects by name, such as an optimizer or an exchange. Each is described next to
// its code.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "engine/any_options.h"
#include "engine/did_you_mean.h"

namespace godwit {

// A kind of method is a struct with a static kKind ("optimizer") and at least these fields:
//   std::string name; std::vector<std::string> aliases; AnyOptions defaults;
//   std::string help;   // one line, for a list of methods
//   std::string paper;  // source of the algorithm
//   std::string bytes;  // bytes sent per worker and step

// All methods of a kind, in --help order. A program may append methods at start-up, before the first use.
template <class Method>
std::vector<const Method*>& methods();

// Names of all methods of a kind, without aliases.
template <class Method>
std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const Method* method : methods<Method>()) names.push_back(method->name);
  return names;
}

// The method with this name or alias; null if there is none.
template <class Method>
const Method* method_named(const std::string& name) {
  for (const Method* method : methods<Method>())
    if (method->name == name ||
        std::find(method->aliases.begin(), method->aliases.end(), name) != method->aliases.end())
      return method;
  return nullptr;
}

// The method with this name or alias. Throws an Error that suggests the nearest name if there is none.
template <class Method>
const Method& find_method(const std::string& name) {
  if (const Method* method = method_named<Method>(name)) return *method;
  fail(Method::kKind, " '", name, "' is unknown", did_you_mean(name, method_names<Method>()));
}

// A method and its options; copyable.
template <class Method>
class MethodConfig {
 public:
  // The method with its default options.
  explicit MethodConfig(const Method& method) : method_(&method), options_(method.defaults) {}
  // The method of this name with its default options. Throws for an unknown name.
  MethodConfig(const std::string& name) : MethodConfig(find_method<Method>(name)) {}
  MethodConfig(const char* name) : MethodConfig(std::string(name)) {}
  // `json`: an object such as {"lr": 0.01}. Throws for an unknown option and for an out-of-range value.
  MethodConfig(const std::string& name, const std::string& json) : MethodConfig(name) {
    assign_json(list(), json, this->name());
  }
  // The method whose options struct has type O, with these options. Throws if there is no such method.
  template <class O>
  requires requires(O& o, OptionList& list) { o.describe(list); }
  MethodConfig(O options) : options_(std::move(options)) {
    for (const Method* method : methods<Method>())
      if (!method_ && method->defaults.template holds<O>()) method_ = method;
    check(method_ != nullptr, Method::kKind, ": no method has options of this type; add it to methods()");
  }

  virtual ~MethodConfig() = default;
  MethodConfig(const MethodConfig&) = default;  // copies method and options
  MethodConfig& operator=(const MethodConfig&) = default;

  const std::string& name() const { return method_->name; }  // name of the method
  const Method& method() const { return *method_; }          // the selected method
  const AnyOptions& options() const { return options_; }     // options of the method
  AnyOptions& options() { return options_; }
  // The options as the method's struct. Throws if O belongs to another method.
  template <class O>
  O& as() {
    return options_.as<O>();
  }
  template <class O>
  const O& as() const {
    return options_.as<O>();
  }

  // The method's options, followed by the options common to all methods of the kind. The list refers to this object.
  OptionList list() const {
    OptionList all = options_.list();
    add_common(all);
    for (Option& option : all) option.method = name();
    return all;
  }
  // Whether the method or its kind has this option.
  bool has(const std::string& option) const { return list().find(option) != nullptr; }
  // The option's value as text. Throws if the method does not have the option.
  std::string text(const std::string& option) const { return value_text(find(list(), option)); }
  // The value of a numeric option. Throws if the method does not have the option or the option is not a number.
  double number(const std::string& option) const {
    const OptionList all = list();
    const Option& found = find(all, option);
    if (const auto* d = std::get_if<double*>(&found.ref)) return **d;
    const auto* i = std::get_if<int64_t*>(&found.ref);
    check(i != nullptr, name(), ": option ", option, " is not a number");
    return static_cast<double>(**i);
  }
  // Sets an option by name. Throws for an unknown name and for an out-of-range value.
  template <class T>
  MethodConfig& set(const std::string& option, const T& value) {
    OptionValue written;
    if constexpr (std::is_same_v<T, bool>) {
      written.data = value, written.shown = value ? "true" : "false";
    } else if constexpr (std::is_integral_v<T>) {
      written.data = static_cast<int64_t>(value), written.shown = std::to_string(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      written.data = static_cast<double>(value), written.shown = detail::concat(value);
    } else {
      written = text_value(value);
    }
    assign(find(list(), option), written, name() + ": " + option);
    return *this;
  }
  // Throws if a value is out of range or the options' check() throws.
  void check_values() const { options_.check(name()); }

 protected:
  virtual void add_common(OptionList&) const {}  // adds the options common to all methods of the kind

 private:
  const Option& find(const OptionList& list, const std::string& option) const {
    const Option* found = list.find(option);
    godwit::check(found != nullptr, name(), ": no such option '", option, "'", did_you_mean(option, list.names()));
    return *found;
  }
  const Method* method_ = nullptr;
  AnyOptions options_;
};

// Adds the option that selects the method. Assigning it resets the method's options to their defaults.
template <class Method, class Config>
Option& add_name(OptionList& list, Config& config, const std::string& help) {
  Option option;
  option.name = "name", option.help = help;
  option.ref = ChoiceRef{&config, [](const void* at) { return static_cast<const Config*>(at)->name(); },
                         [](void* at, const std::string& name) { *static_cast<Config*>(at) = Config(name); }};
  for (const Method* method : methods<Method>()) {
    option.choices.push_back(method->name);
    option.choices.insert(option.choices.end(), method->aliases.begin(), method->aliases.end());
  }
  return list.append(std::move(option));
}

}  // namespace godwit
