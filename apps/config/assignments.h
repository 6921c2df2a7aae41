// Assignments: options with the values that a file or a command line gives. Internal to apps/config.
#pragma once
#include <string>
#include <vector>

#include "apps/config/program.h"

namespace godwit::apps {

struct Assignment {
  std::string option;   // "optimizer.lr"
  std::string section;  // "optimizer"
  OptionValue value;
  std::string subject;  // beginning of a message: "--lr", "run.json: optimizer.lr"
};
using Assignments = std::vector<Assignment>;

// The options of the program and of all methods. Only their names and types are meaningful.
class KnownOptions {
 public:
  explicit KnownOptions(const Program& program);
  const OptionList& list() const { return list_; }
  bool is_group(const std::string& name) const;  // "optimizer", "data", …
  // The option that a text for a whole group sets: its name or path; null if it has neither.
  const Option* short_form(const std::string& group) const;
  [[noreturn]] void fail_unknown(const std::string& subject, const std::string& name) const;  // names the nearest

 private:
  ConfigPtr config_;  // list_ refers to it
  OptionList list_;
};

// Throw, naming the file and the key or the line and column, for a file that cannot be read, text that is not one JSON
// object, a repeated key, an unknown key. `group`: where the object is, "" or "optimizer".
Assignments read_json_file(const KnownOptions& known, const std::string& file);
Assignments read_json_text(const KnownOptions& known, const std::string& text, const std::string& subject,
                           const std::string& group);

// `file` first, then `command`, each in order; see parse_command_line() for the blocks that are left out.
ConfigPtr resolve(const Program& program, const Assignments& file, const Assignments& command);

// The text of --help, or of --help TOPIC: a method, a group of options, or an option. At most 100 columns. Throws,
// naming the nearest topic, for an unknown one.
std::string help_text(const Program& program, const std::string& topic);

}  // namespace godwit::apps
