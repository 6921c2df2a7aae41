// The text of --help.
#include <cctype>
#include <functional>
#include <set>

#include "apps/config/assignments.h"
#include "engine/did_you_mean.h"
#include "engine/excerpt.h"

namespace godwit::apps {
namespace {

constexpr size_t kWidth = 100;

// The word, then the text from column `indent` on, wrapped.
std::string entry(const std::string& word, size_t indent, const std::string& text) {
  std::string lines = "  " + word + (word.size() + 4 > indent ? "  " : std::string(indent - word.size() - 2, ' '));
  size_t column = lines.size();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (column + (end - at) > kWidth) {
      while (lines.back() == ' ') lines.pop_back();
      lines.append("\n").append(indent, ' ');
      column = indent;
    }
    lines.append(text, at, end - at).append(end < text.size() ? " " : "");
    column += end - at + 1;
    at = end + 1;
  }
  return lines + "\n";
}

std::string value_name(const Option& option) {
  if (std::holds_alternative<bool*>(option.ref)) return "";  // a switch
  if (!option.placeholder.empty()) return std::string(1, ' ').append(option.placeholder);
  if (std::holds_alternative<ChoiceRef>(option.ref) || std::holds_alternative<std::string*>(option.ref)) return " NAME";
  return std::holds_alternative<double*>(option.ref) ? " X" : " N";
}

// Help, range, and choices with the default in brackets: "learning-rate schedule: [constant], multi_step".
std::string meaning(const Option& option, bool with_range) {
  const bool differs = !with_range && option.name == "optimizer.lr";  // the default differs by method
  const std::string value = differs ? "the optimizer's" : value_text(option);
  std::string text = option.help;
  if (option.choices.empty() || option.name == "optimizer.name" || option.name == "exchange.name") {
    std::string range = range_text(option.range);  // " of at least 0"
    if (range.starts_with(" of")) range.erase(0, 3);
    if (with_range && !range.empty()) text.append(";").append(range);
    if (!value.empty()) text.append(" [").append(value).append("]");
    return text;
  }
  for (size_t i = 0; i < option.choices.size(); ++i) {
    text.append(i > 0 ? ", " : text.empty() ? "" : ": ");
    const bool is_default = option.choices[i] == value;
    text.append(is_default ? "[" : "").append(option.choices[i]).append(is_default ? "]" : "");
  }
  return text;
}

std::string options_text(const OptionList& list, const std::string& prefix) {
  std::string text;
  for (const Option& option : list) {
    const std::string name = prefix + option.name;
    text += entry(option.flag.empty() ? name : name + " (" + option.flag + ")", 36, meaning(option, true));
  }
  return text;
}

template <class Method>
std::string method_text(const Method& method, const OptionList& options, const std::string& group) {
  std::string text = detail::concat(method.name, ", an ", Method::kKind, "\n") + entry("method", 14, method.help);
  for (const std::string& alias : method.aliases) text += entry("other name", 14, alias);
  if (!method.paper.empty()) text += entry("paper", 14, method.paper);
  text += entry("sends", 14, method.bytes);
  if (method.bytes.find("d(") != std::string::npos)
    text += entry("", 14, "bytes per step and worker; d parameters, W workers, n nodes of m workers each");
  return text + "\nOptions [default]\n" + options_text(options, group);
}

// A line for each method; `more` is appended to its help.
template <class Method>
std::string method_lines(const std::function<std::string(const Method&)>& more) {
  std::string text;
  for (const Method* method : methods<Method>()) {
    std::string help = method->help;
    for (const std::string& alias : method->aliases) help.append("; also called ").append(alias);
    help += more(*method);
    text += entry(method->name, 17, help);
  }
  return text;
}

// The help of one topic: a method, a group or section of options, or an option.
std::string topic_text(const Program& program, const std::string& topic) {
  const ConfigPtr config = default_config(program);
  std::vector<std::string> topics;
  for (const OptimizerMethod* method : methods<OptimizerMethod>()) {
    topics.push_back(method->name);
    topics.insert(topics.end(), method->aliases.begin(), method->aliases.end());
  }
  for (const std::string& name : topics)
    if (name == topic) {
      const OptimizerConfig chosen = program.optimizer_defaults(*config, topic);
      return method_text(chosen.method(), chosen.list(), "optimizer.");
    }
  for (const ExchangeMethod* method : methods<ExchangeMethod>()) {
    topics.push_back(method->name);
    if (method->name == topic) return method_text(*method, ExchangeConfig(*method).list(), "exchange.");
  }
  std::string text;
  const KnownOptions known(program);
  for (const Option& option : known.list()) {
    const std::string group = option.name.substr(0, option.name.find('.'));
    topics.insert(topics.end(), {option.section, group, option.name});
    const bool choice = option.name.ends_with(".name") &&
                        std::find(option.choices.begin(), option.choices.end(), topic) != option.choices.end();
    if (choice) {  // a model, a schedule: the options that it reads
      const ConfigPtr chosen =
          program.defaults([&](const std::string& name) { return name == option.name ? topic : ""; });
      chosen->optimizer = config->optimizer;
      assign(*chosen->options().find(option.name), text_value(topic), topic);
      OptionList of_group;
      for (const Option& other : chosen->options())
        if (other.name.starts_with(group + ".") && other.inapplicable.empty()) of_group.push_back(other);
      return topic + ": a choice of " + option.name + "\n\nOptions [default]\n" + options_text(of_group, "");
    }
    topics.insert(topics.end(), option.choices.begin(), option.choices.end());
    const bool named = option.section == topic || group == topic || option.name == topic ||
                       option.flag == "--" + topic ||
                       std::find(option.choices.begin(), option.choices.end(), topic) != option.choices.end();
    OptionList one;
    one.push_back(option);
    if (named) text += options_text(one, "");
  }
  std::vector<std::string> once;  // each topic, in the order of the list
  std::set<std::string> seen;
  for (const std::string& name : topics)
    if (seen.insert(name).second) once.push_back(name);
  check(!text.empty(), "--help: no such topic '", excerpt(topic), "'", did_you_mean(topic, once));
  return text;
}

}  // namespace

std::string help_text(const Program& program, const std::string& topic) {
  if (!topic.empty()) return topic_text(program, topic);
  const ConfigPtr config = default_config(program);
  const OptionList options = config->options();
  std::string text = program.purpose, section;
  for (const Option& option : options) {
    if (option.flag.empty()) continue;
    if (option.section != section) {
      section = option.section;
      text += static_cast<char>(std::toupper(static_cast<unsigned char>(section[0])));
      text += section.substr(1) + "\n";
    }
    text += entry(option.flag + value_name(option), 24, meaning(option, false));
  }
  text += "Configuration; later ones win: the optimizer's defaults, FILE, then flags and --set in their order\n";
  text += entry("--config FILE", 24, "JSON; a key is written {\"optimizer\": {\"lr\": 0.1}}");
  text += entry("--set KEY=VALUE", 24, "any key, as --set optimizer.momentum=0.8");
  text += entry("--print-config", 24, "print every value as JSON and end");
  text += entry("--help [TOPIC]", 24, "print this, or explain a method, a group of keys or a key, and end");
  const auto lr = [&](const OptimizerMethod& method) {
    return " [lr " + program.optimizer_defaults(*config, method.name).text("lr") + "]";
  };
  text += "\nOptimizers; --help NAME lists the options of one\n" + method_lines<OptimizerMethod>(lr);
  text += "\nExchanges of gradients, for optimizers that do not communicate themselves\n" +
          method_lines<ExchangeMethod>([](const ExchangeMethod&) { return ""; });
  text += "\nKeys of --set and of the JSON file that have no flag [default]\n";
  for (const Option& option : options)
    if (option.flag.empty() && option.section != "optimizer" && !option.name.starts_with("exchange."))
      text += entry(option.name, 32, meaning(option, false));
  return text + program.results;
}

}  // namespace godwit::apps
