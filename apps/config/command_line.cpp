#include "apps/config/command_line.h"

#include <filesystem>
#include <iostream>

#include "apps/config/assignments.h"
#include "apps/config/build_identity.h"
#include "engine/did_you_mean.h"
#include "engine/excerpt.h"
#include "engine/text_file.h"
#include "optim/checkpoint.h"

namespace godwit::apps {
namespace {

// A command line: flags and --set with their values, in the order given.
struct CommandLine {
  bool print_config = false;
  std::string config_file;                                     // empty: none
  std::string config_hint = "; --config expects a JSON file";  // end of an error if config_file cannot be read
  std::string version_hint;                                    // end of an error about its contents
  bool resumes_auto = false;                                   // --resume auto or --set resume=auto
  std::vector<std::pair<const Option*, std::string>> values;   // option null: the text is KEY=VALUE of --set
};

const std::vector<std::string> kOwnFlags = {"--help", "-h", "--version", "--config", "--set", "--print-config"};

bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

// "--batch-size" and "batch.size" as "batch_size".
std::string as_key(std::string text) {
  text.erase(0, text.find_first_not_of('-'));
  for (char& c : text)
    if (c == '-' || c == '.') c = '_';
  return text;
}

[[noreturn]] void fail_unknown_argument(const KnownOptions& known, std::string word) {
  word = word.substr(0, word.find('='));
  if (!word.starts_with('-')) fail("unexpected argument '", excerpt(word), "'; --help shows the flags");
  std::vector<std::string> flags = kOwnFlags;
  const std::string key = as_key(word);
  std::string meaning = key, exact, prefix;
  std::replace(meaning.begin(), meaning.end(), '_', ' ');
  for (const Option& option : known.list()) {
    if (option.flag.empty()) {
      if (as_key(option.name) == key || option.name.ends_with("." + key))
        fail("no such flag ", excerpt(word), "; write --set ", option.name, "=VALUE");
      continue;
    }
    flags.push_back(option.flag);
    if (as_key(option.name) == key || option.help == meaning) exact = option.flag;  // --optimizer-lr, --learning-rate
    if (key.starts_with(as_key(option.flag) + "_")) prefix = option.flag;           // --batch-size
  }
  const std::string best = !exact.empty() ? exact : !prefix.empty() ? prefix : nearest(word, flags);
  fail("no such flag ", excerpt(word), best.empty() ? "; --help shows the flags" : "; did you mean " + best + "?");
}

CommandLine read_command_line(const KnownOptions& known, const std::vector<std::string>& words) {
  CommandLine line;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].starts_with('-') ? words[i].find('=') : std::string::npos;
    const bool has_value = equals != std::string::npos;
    const std::string flag = words[i].substr(0, equals);
    std::string value = has_value ? words[i].substr(equals + 1) : "";
    if (is_help(flag) || flag == "--version" || flag == "--print-config") {
      check(!has_value, flag, " takes no value, got '", excerpt(value), "'");
      line.print_config = true;
      continue;
    }
    const Option* option = known.list().find_flag(flag);
    if (!option && flag != "--config" && flag != "--set") fail_unknown_argument(known, words[i]);
    if (!has_value && option && std::holds_alternative<bool*>(option->ref)) {
      value = "true";
    } else if (!has_value) {
      check(i + 1 < words.size(), flag, " expects a value");
      value = words[++i];
    }
    const bool own = std::find(kOwnFlags.begin(), kOwnFlags.end(), value) != kOwnFlags.end();
    check(!own && !known.list().find_flag(value), flag, " expects a value, got the flag ", value);
    check(!value.empty() || !option || option->if_empty.empty(), flag, ": ", option ? option->if_empty : "");
    check(!value.empty() || flag == "--set", flag, " expects a ", flag == "--config" ? "file" : "value",
          ", got nothing");
    check(flag != "--config" || line.config_file.empty(), "--config is given twice; it takes one file");
    if (flag == "--config") line.config_file = value;
    else line.values.emplace_back(option, value);
  }
  return line;
}

void add_set(const KnownOptions& known, const std::string& text, Assignments& out) {
  const size_t equals = text.find('=');
  check(equals != std::string::npos && equals > 0, "--set expects KEY=VALUE, such as optimizer.lr=0.1; got '",
        excerpt(text), "'");
  const std::string name = text.substr(0, equals), value = text.substr(equals + 1), subject = "--set " + name;
  if (known.is_group(name) && value.starts_with('{')) {
    const Assignments group = read_json(known, value, subject, name);
    out.insert(out.end(), group.begin(), group.end());
    return;
  }
  const Option& option = known.at("--set", name, text_value(value));
  // Texts without a flag, such as optimizer.frozen, may be empty, so that a resumed run can clear them.
  const bool may_be_empty = option.flag.empty() && std::holds_alternative<std::string*>(option.ref);
  check(!value.empty() || may_be_empty, subject, " expects a value, got nothing");
  out.push_back({option.name, text_value(value), subject});
}

bool same_folder(const std::string& a, const std::string& b) {
  const auto normal = [](const std::string& path) { return (std::filesystem::path(path) / "").lexically_normal(); };
  return normal(a) == normal(b);
}

// --resume DIR sets the run directory to DIR and, without --config, reads DIR/config.json. Throws if --run-dir names
// another folder, or is missing with --resume auto.
void add_resumed_run(const KnownOptions& known, CommandLine& line) {
  std::string resume, run_dir;
  for (const auto& [option, text] : line.values) {
    if (option && option->name == "resume") resume = text;
    if (option && option->name == "run_dir") run_dir = text;
    if (!option && text.starts_with("resume=")) resume = text.substr(text.find('=') + 1);
    if (!option && text.starts_with("run_dir=")) run_dir = text.substr(text.find('=') + 1);
  }
  if (resume.empty()) return;
  const bool named = resume != "auto";
  line.resumes_auto = !named;
  check(named || !run_dir.empty(), "--resume auto continues the run in --run-dir DIR; give that folder too");
  if (!named) return;
  check(run_dir.empty() || same_folder(run_dir, resume), "--resume ", excerpt(resume),
        " continues in its own folder; leave run_dir ", excerpt(run_dir), " out");
  std::error_code none;
  check(!std::filesystem::exists(std::filesystem::path(resume) / "manifest.json", none), "--resume ", excerpt(resume),
        ": is a checkpoint; give the folder of its run, which continues from its newest checkpoint");
  if (line.config_file.empty()) {
    line.config_file = resume + "/config.json";
    line.config_hint = "; --resume expects the folder of a run";
    line.version_hint = " (if another program or version of Godwit wrote this file, continue the run with that one)";
  }
  line.values.emplace_back(known.list().find("run_dir"), resume);
}

Assignments read_config_file(const Program& program, const KnownOptions& known, const CommandLine& line) {
  const std::string text = [&] {
    try {
      return read_text_file(line.config_file, 1, line.config_hint);
    } catch (const Error& error) {  // after a restart, the disk of the file may come back
      using std::filesystem::file_type;
      std::error_code ignored;
      const file_type type = std::filesystem::symlink_status(line.config_file, ignored).type();
      const bool is_wrong = type == file_type::not_found || type == file_type::directory;
      if (line.resumes_auto && !is_wrong) throw CheckpointFailed(error.what());
      throw;
    }
  }();
  check_program(text, line.config_file, program.name);
  try {
    return read_json(known, text, line.config_file, "");
  } catch (const Error& error) {
    throw error.with_text(error.what() + line.version_hint);
  }
}

}  // namespace

ConfigPtr parse_command_line(const Program& program, int argc, const char* const* argv, std::ostream& out) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (const auto help = std::find_if(words.begin(), words.end(), is_help); help != words.end()) {
    out << help_text(program, help + 1 != words.end() && !help[1].starts_with('-') ? help[1] : "");
    return nullptr;
  }
  if (std::find(words.begin(), words.end(), "--version") != words.end()) {
    out << version_line(program.name) << '\n';
    return nullptr;
  }
  const ConfigPtr defaults = default_config(program);
  const KnownOptions known(*defaults);
  CommandLine line = read_command_line(known, words);
  add_resumed_run(known, line);
  Assignments file, command;
  if (!line.config_file.empty()) file = read_config_file(program, known, line);
  for (const auto& [option, text] : line.values) {
    if (option) command.push_back({option->name, text_value(text), option->flag});
    else add_set(known, text, command);
  }
  ConfigPtr config = resolve(program, file, command);
  if (!line.print_config) return config;
  for (const std::string& notice : config->notices) std::cerr << program.name << ": notice: " << notice << '\n';
  out << to_json(*config) << '\n';
  return nullptr;
}

}  // namespace godwit::apps
