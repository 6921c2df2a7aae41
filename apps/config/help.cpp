// Creates the text of --help.
#include <algorithm>
#include <cctype>
#include <sstream>

#include "apps/config/assignments.h"
#include "engine/did_you_mean.h"
#include "engine/excerpt.h"
#include "engine/wrap.h"

namespace godwit::apps {
namespace {

// The word, then the text from column `indent` on.
std::string entry(const std::string& word, size_t indent, const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string each; in >> each;) words.push_back(each);
  return wrap("  " + word + (word.size() + 4 > indent ? "  " : ""), indent, words, " ");
}

std::string value_name(const Option& option) {
  if (std::holds_alternative<bool*>(option.ref)) return "";  // a switch
  if (!option.placeholder.empty()) return std::string(1, ' ').append(option.placeholder);
  if (std::holds_alternative<ChoiceRef>(option.ref) || std::holds_alternative<std::string*>(option.ref)) return " NAME";
  return std::holds_alternative<double*>(option.ref) ? " X" : " N";
}

bool has_choice(const Option& option, const std::string& text) {
  return std::find(option.choices.begin(), option.choices.end(), text) != option.choices.end();
}

// Help, range, and choices with the default in brackets: "learning-rate schedule: [constant], multi_step".
std::string meaning(const Option& option, const std::string& value, bool with_range) {
  std::string text = option.help;
  if (option.choices.empty() || option.name == "optimizer.name" || option.name == "exchange.name") {
    std::string range = with_range ? range_text(option.range) : "";
    if (range.starts_with(" of")) range.erase(0, 3);  // " of at least 0"
    if (!range.empty()) text.append(";").append(range);
    return value.empty() ? text : text.append(" [").append(value).append("]");
  }
  for (const std::string& choice : option.choices) {
    text.append(&choice != &option.choices.front() ? ", " : text.empty() ? "" : ": ");
    text.append(choice == value ? "[" + choice + "]" : choice);
  }
  return text;
}

std::string default_text(const Option& option) {
  return option.shown_default.empty() ? value_text(option) : option.shown_default;
}

std::string option_line(const Option& option, const std::string& prefix = "") {
  const std::string name = prefix + option.name;
  return entry(option.flag.empty() ? name : name + " (" + option.flag + ")", 36,
               meaning(option, default_text(option), true));
}

template <class Method>
std::string method_text(const Method& method, const OptionList& options, const std::string& group) {
  std::string text = detail::concat(method.name, ", an ", Method::kKind, "\n") + entry("method", 14, method.help);
  for (const std::string& alias : method.aliases) text += entry("other name", 14, alias);
  if (!method.paper.empty()) text += entry("paper", 14, method.paper);
  text += entry("sends", 14, method.bytes);
  if (method.bytes.find("d(") != std::string::npos)
    text += entry("", 14, "bytes per step and worker; d parameters, W workers, n nodes of m workers each");
  text += "\nOptions [default]\n";
  for (const Option& option : options) text += option_line(option, group + ".");
  return text;
}

// The options that the program reads with this model or schedule.
std::string choice_text(const Program& program, const Option& name, const std::string& choice) {
  const ConfigPtr config = program.defaults([&](const std::string& o) { return o == name.name ? choice : ""; });
  config->optimizer = default_config(program)->optimizer;
  assign(*config->options().find(name.name), text_value(choice), choice);
  const std::string group = name.name.substr(0, name.name.find('.') + 1);
  std::string text = choice + ": a choice of " + name.name + "\n\nOptions [default]\n";
  for (const Option& option : config->options())
    if (option.name.starts_with(group) && option.inapplicable.empty()) text += option_line(option);
  return text;
}

// An option of optimizers: one entry for each optimizer that has it, with the program's default.
std::string optimizer_option_text(const Program& program, const std::string& option) {
  std::string text;
  for (const std::string& name : method_names<OptimizerMethod>()) {
    OptimizerConfig optimizer = program.optimizer_defaults(*default_config(program), name);
    if (optimizer.has(option)) text += name + "\n" + option_line(*optimizer.list().find(option), "optimizer.");
  }
  return text;
}

// The help of one topic: a method, a group or section of options, or an option.
std::string topic_text(const Program& program, const std::string& topic) {
  if (method_named<OptimizerMethod>(topic)) {
    const OptimizerConfig optimizer = program.optimizer_defaults(*default_config(program), topic);
    return method_text(optimizer.method(), optimizer.list(), "optimizer");
  }
  const ConfigPtr config = default_config(program);
  if (const ExchangeMethod* method = method_named<ExchangeMethod>(topic)) {
    config->set_exchange(method->name);
    return method_text(*method, config->exchange.list(), "exchange");
  }
  const KnownOptions known(*config);
  std::string text;
  std::vector<std::string> topics;  // names of methods come first
  const auto add = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if (std::find(topics.begin(), topics.end(), name) == topics.end()) topics.push_back(name);
  };
  add(known.list().find("optimizer.name")->choices);
  add(known.list().find("exchange.name")->choices);
  for (const Option& option : known.list()) {
    const std::string group = option.name.substr(0, option.name.find('.'));
    if (option.name.ends_with(".name") && has_choice(option, topic)) return choice_text(program, option, topic);
    if (topic == option.name && topic.starts_with("optimizer.") && topic != "optimizer.name")
      return optimizer_option_text(program, topic.substr(topic.find('.') + 1));
    const bool named = topic == option.section || topic == group || topic == option.name ||
                       "--" + topic == option.flag || has_choice(option, topic);
    if (named) text += option_line(option);
    add({option.section, group, option.name});
    add(option.choices);
  }
  check(!text.empty(), "--help: no such topic '", excerpt(topic), "'", did_you_mean(topic, topics));
  return text;
}

// One line per method, which ends with more(method).
template <class Method>
std::string method_lines(const auto& more) {
  std::string text;
  for (const Method* method : methods<Method>()) {
    std::string help = method->help;
    for (const std::string& alias : method->aliases) help.append("; also called ").append(alias);
    text += entry(method->name, 17, help + more(*method));
  }
  return text;
}

}  // namespace

std::string help_text(const Program& program, const std::string& topic) {
  if (!topic.empty()) return topic_text(program, topic);
  const ConfigPtr config = default_config(program);
  std::string flags, keys, section;
  for (const Option& option : config->options()) {
    if (option.flag.empty()) {
      if (option.section != "optimizer" && !option.name.starts_with("exchange."))
        keys += entry(option.name, 32, meaning(option, default_text(option), false));
      continue;
    }
    if (option.section != section) {
      section = option.section;
      flags += static_cast<char>(std::toupper(static_cast<unsigned char>(section[0]))) + section.substr(1) + "\n";
    }
    const std::string value = option.name == "optimizer.lr" ? "the optimizer's" : default_text(option);
    flags += entry(option.flag + value_name(option), 24, meaning(option, value, false));
  }
  const auto lr = [&](const OptimizerMethod& method) {
    return " [lr " + program.optimizer_defaults(*config, method.name).text("lr") + "]";
  };
  return program.purpose + flags +
         "Configuration: defaults, then FILE, then flags and --set in the order given; later values override\n" +
         entry("--config FILE", 24, "JSON file, for example {\"optimizer\": {\"lr\": 0.1}}") +
         entry("--set KEY=VALUE", 24, "set any key, for example --set optimizer.momentum=0.8") +
         entry("--print-config", 24, "print every value as JSON and end") +
         entry("--version", 24, "print version, hash of the sources and libraries of this build, and end") +
         entry("--help [TOPIC]", 24, "print this, or explain a method, a group of keys or a key, and end") +
         "\nOptimizers; --help NAME lists the options of one\n" + method_lines<OptimizerMethod>(lr) +
         "\nExchanges, which average the gradients of optimizers that do not communicate themselves\n" +
         method_lines<ExchangeMethod>([](const ExchangeMethod&) { return ""; }) +
         "\nKeys of --set and of the JSON file that have no flag [default]\n" + keys + program.results;
}

}  // namespace godwit::apps
