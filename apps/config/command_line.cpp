#include "apps/config/command_line.h"

#include <iostream>

#include "apps/config/assignments.h"
#include "engine/did_you_mean.h"
#include "engine/excerpt.h"

namespace godwit::apps {
namespace {

// The words of a command line, with the values of flags and --set in the order given.
struct CommandLine {
  bool help = false, print_config = false;
  std::string topic;  // of --help
  std::vector<std::string> config_files;
  std::vector<std::pair<const Option*, std::string>> values;  // null: the text is KEY=VALUE of --set
};

const Option* find_flag(const KnownOptions& known, const std::string& flag) {
  for (const Option& option : known.list())
    if (!option.flag.empty() && option.flag == flag) return &option;
  return nullptr;
}

[[noreturn]] void fail_unknown_argument(const KnownOptions& known, std::string word) {
  word = word.substr(0, word.find('='));
  if (word.empty() || word[0] != '-') fail("unexpected argument '", excerpt(word), "'; --help shows the flags");
  std::vector<std::string> flags = {"--help", "--config", "--set", "--print-config"};
  std::string key = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  std::replace(key.begin(), key.end(), '-', '_');
  std::string name;
  for (const Option& option : known.list()) {
    if (!option.flag.empty()) flags.push_back(option.flag);
    else if (name.empty() && (option.name == key || option.name.ends_with("." + key))) name = option.name;
  }
  if (!name.empty()) fail("no such flag ", excerpt(word), "; write --set ", name, "=VALUE");
  const std::string best = nearest(word, flags);
  fail("no such flag ", excerpt(word), best.empty() ? "; --help shows the flags" : "; did you mean " + best + "?");
}

[[noreturn]] void fail_nothing(const std::string& flag) {
  fail(flag, " expects ", flag == "--config" ? "a file" : "a value", ", got nothing");
}

CommandLine read_command_line(const KnownOptions& known, const std::vector<std::string>& words) {
  CommandLine line;
  std::string unknown;
  for (const std::string& word : words) line.help |= word == "--help" || word == "-h";
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].starts_with("-") ? words[i].find('=') : std::string::npos;
    const std::string flag = words[i].substr(0, equals);
    const bool has_value = equals != std::string::npos;
    const std::string given = has_value ? words[i].substr(equals + 1) : std::string();
    const bool is_help = flag == "--help" || flag == "-h";
    const auto is_flag = [&](const std::string& word) {
      return word == "--help" || word == "-h" || word == "--config" || word == "--set" || word == "--print-config" ||
             find_flag(known, word);
    };
    const auto value = [&] {  // after "=", or the next word
      if (has_value && given.empty()) fail_nothing(flag);
      if (has_value) {
        check(!is_flag(given), flag, " expects a value, got the flag ", given);
        return given;
      }
      check(i + 1 < words.size() || line.help, flag, " expects a value");
      if (i + 1 == words.size()) return std::string();
      check(!is_flag(words[i + 1]) || line.help, flag, " expects a value, got the flag ", words[i + 1]);
      return words[++i];
    };
    if (is_help || flag == "--print-config") {
      if (has_value) fail(flag, " takes no value, got '", excerpt(given), "'");
      if (is_help && i + 1 < words.size() && !words[i + 1].starts_with("-")) line.topic = words[++i];
      line.print_config |= !is_help;
    } else if (flag == "--config") {
      line.config_files.push_back(value());
    } else if (flag == "--set") {
      line.values.emplace_back(nullptr, value());
    } else if (const Option* option = find_flag(known, flag)) {
      const bool is_switch = std::holds_alternative<bool*>(option->ref);
      line.values.emplace_back(option, is_switch && !has_value ? "true" : value());
    } else if (unknown.empty()) {
      unknown = words[i].empty() ? " " : words[i];
    }
  }
  if (!unknown.empty() && !line.help) fail_unknown_argument(known, unknown);
  return line;
}

Assignment from_text(const Option& option, const std::string& text, const std::string& subject) {
  if (text.empty()) fail_nothing(subject);
  return {option.name, option.section, text_value(text), subject};
}

void add_set(const KnownOptions& known, const std::string& text, Assignments& out) {
  const size_t equals = text.find('=');
  check(equals != std::string::npos && equals > 0, "--set expects KEY=VALUE, as optimizer.lr=0.1; got '", excerpt(text),
        "'");
  const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
  const Option* option = known.list().find(name);
  if (!option && known.is_group(name)) {
    if (!value.empty() && value[0] == '{') {
      const Assignments group = read_json_text(known, value, "--set " + name, name);
      out.insert(out.end(), group.begin(), group.end());
      return;
    }
    option = known.short_form(name);
    check(option != nullptr, "--set ", name, " is a group of keys; set one of them, as ", name, ".KEY=VALUE");
  }
  if (!option) known.fail_unknown("--set", name);
  out.push_back(from_text(*option, value, "--set " + name));
}

// --resume DIR sets the run directory to DIR and, without --config, reads DIR/config.json. Throws if --run-dir names
// another folder, or is missing with --resume auto.
void add_resumed_run(const KnownOptions& known, CommandLine& line) {
  const auto given = [&](const char* name) -> const std::string* {
    for (auto i = line.values.rbegin(); i != line.values.rend(); ++i)
      if (i->first && i->first->name == name) return &i->second;
    return nullptr;
  };
  const std::string* resume = given("resume");
  if (!resume || resume->empty()) return;
  const bool named = *resume != "auto";
  check(named || given("run_dir"), "--resume auto continues the run in --run-dir DIR; give that folder too");
  check(!named || !given("run_dir") || *given("run_dir") == *resume, "--resume ", excerpt(*resume),
        " continues in its own folder; leave --run-dir out");
  if (!named) return;
  if (line.config_files.empty()) line.config_files.push_back(*resume + "/config.json");
  if (!given("run_dir")) line.values.emplace_back(known.list().find("run_dir"), *resume);
}

}  // namespace

ConfigPtr parse_command_line(const Program& program, int argc, const char* const* argv, std::ostream& out) {
  const KnownOptions known(program);
  CommandLine line = read_command_line(known, {argv + 1, argv + argc});
  if (line.help) {
    out << help_text(program, line.topic);
    return nullptr;
  }
  check(line.config_files.size() <= 1, "--config is given ", line.config_files.size(), " times; it takes one file");
  if (!line.config_files.empty() && line.config_files.front().empty()) fail_nothing("--config");
  Assignments file, command;
  add_resumed_run(known, line);
  if (!line.config_files.empty()) file = read_json_file(known, line.config_files.front());
  for (const auto& [option, text] : line.values) {
    if (option) command.push_back(from_text(*option, text, option->flag));
    else add_set(known, text, command);
  }
  ConfigPtr config = resolve(program, file, command);
  const std::string json = to_json(*config);
  if (!line.print_config) return config;
  for (const std::string& notice : config->notices) std::cerr << program.name << ": notice: " << notice << '\n';
  out << json << '\n';
  return nullptr;
}

}  // namespace godwit::apps
