#include "apps/config/command_line.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>

#include "apps/config/help.h"
#include "apps/config/json_config.h"
#include "apps/config/resolve.h"
#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/did_you_mean.h"

namespace godwit::apps {
namespace {

// What the command line says, with the values of --set and the flags in the order given.
struct CommandLine {
  bool help = false, print_config = false;
  std::vector<std::string> config_files;
  std::vector<std::pair<const Setting*, std::string>> values;  // null: the text is one of --set
};

[[noreturn]] void fail_unknown_argument(const Program& program, std::string word) {
  word = word.substr(0, word.find('='));
  if (word.empty() || word[0] != '-') fail("unexpected argument '", excerpt(word), "'; --help shows the flags");
  std::vector<std::string> flags = {"--help", "--config", "--set", "--print-config"};
  std::string key = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  std::replace(key.begin(), key.end(), '-', '_');
  std::string path;
  for (const Setting& setting : program.settings) {
    if (!setting.flag.empty()) flags.push_back(setting.flag);
    else if (setting.path == key || setting.path.substr(setting.path.rfind('.') + 1) == key) path = setting.path;
  }
  if (!path.empty()) fail("no such flag ", excerpt(word), "; write --set ", path, "=VALUE");
  const std::string best = nearest(word, flags);
  fail("no such flag ", excerpt(word), best.empty() ? "; --help shows the flags" : "; did you mean " + best + "?");
}

bool is_switch(const Program& program, const Setting& setting) {
  const ConfigPtr config = default_config(program);
  return std::holds_alternative<bool*>(setting.member(*config));
}

[[noreturn]] void fail_nothing(const std::string& name) {
  fail(name, " expects ", name == "--config" ? "a file" : "a value", ", got nothing");
}

// CLI11 lets "--print-config=false" pass, and gives the next word to "--data=".
void check_equals(const CLI::App& app, const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return;
  const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
  if (name == "--help" || name == "-h" || name == "--print-config")
    fail(name, " takes no value, got '", excerpt(value), "'");
  if (value.empty() && app.get_option_no_throw(name)) fail_nothing(name);
}

CommandLine read_command_line(const Program& program, int argc, const char* const* argv) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  CommandLine line;
  std::vector<std::string> ignored;
  app.add_flag("--help,-h", line.help);
  app.add_flag("--print-config", line.print_config);
  auto add = [&](const std::string& flag, std::vector<std::string>& values) {
    return app.add_option(flag, values)->type_size(1)->expected(1)->take_all()->allow_extra_args(false);
  };
  add("--config", line.config_files);
  std::map<const CLI::Option*, const Setting*> meaning = {{add("--set", ignored), nullptr}};
  for (const Setting& setting : program.settings)
    if (!setting.flag.empty())
      meaning[is_switch(program, setting) ? app.add_flag(setting.flag) : add(setting.flag, ignored)] = &setting;
  for (int i = 1; i < argc; ++i) check_equals(app, argv[i]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string what = e.what();  // "--lr: 1 required TEXT missing"
    fail(what.substr(0, what.find(':')), " expects a value");
  } catch (const CLI::ParseError& e) {
    fail("command line: ", excerpt(e.what(), 200));
  }
  std::map<const CLI::Option*, size_t> used;
  for (const CLI::Option* option : app.parse_order()) {
    const auto found = meaning.find(option);
    if (found == meaning.end()) continue;
    const std::string& text = option->results().at(used[option]++);
    const bool flag = app.get_option_no_throw(text) != nullptr;  // the value was forgotten
    check(!flag || line.help, option->get_name(), " expects a value, got the flag ", text);
    line.values.emplace_back(found->second, text);
  }
  const std::vector<std::string> extras = app.remaining();
  if (!extras.empty() && !line.help) fail_unknown_argument(program, extras.front());
  return line;
}

Assignment from_text(const Program& program, const Setting& setting, const std::string& text,
                     const std::string& subject) {
  if (text.empty()) fail_nothing(subject);
  return {&setting, value_from_text(program, setting, text), subject};
}

void add_set(const Program& program, const std::string& text, std::vector<Assignment>& out) {
  const size_t equals = text.find('=');
  check(equals != std::string::npos && equals > 0, "--set expects KEY=VALUE, as optimizer.lr=0.1; got '", excerpt(text),
        "'");
  const std::string path = text.substr(0, equals), value = text.substr(equals + 1);
  const Setting* setting = find_setting(program, path);
  if (!setting && is_group(program, path)) {
    if (!value.empty() && value[0] == '{') {
      const std::vector<Assignment> group = read_json_text(program, value, "--set " + path, path);
      out.insert(out.end(), group.begin(), group.end());
      return;
    }
    setting = short_form(program, path);
    check(setting != nullptr, "--set ", path, " is a group of keys; set one of them, as ", path, ".KEY=VALUE");
  }
  if (!setting) fail_unknown_key(program, "--set", path);
  out.push_back(from_text(program, *setting, value, "--set " + path));
}

}  // namespace

ConfigPtr parse_command_line(const Program& program, int argc, const char* const* argv, std::ostream& out) {
  const CommandLine line = read_command_line(program, argc, argv);
  if (line.help) {
    out << help_text(program);
    return nullptr;
  }
  check(line.config_files.size() <= 1, "--config is given ", line.config_files.size(), " times; it takes one file");
  if (!line.config_files.empty() && line.config_files.front().empty()) fail_nothing("--config");
  std::vector<Assignment> file, command;
  if (!line.config_files.empty()) file = read_json_file(program, line.config_files.front());
  for (const auto& [setting, text] : line.values) {
    if (setting) command.push_back(from_text(program, *setting, text, setting->flag));
    else add_set(program, text, command);
  }
  ConfigPtr config = resolve(program, file, command);
  const std::string json = to_json(program, *config);
  if (!line.print_config) return config;
  for (const std::string& notice : config->notices) std::cerr << program.name << ": notice: " << notice << '\n';
  out << json << '\n';
  return nullptr;
}

}  // namespace godwit::apps
