// Assignments: options with the values that a file or a command line gives. Internal to apps/config.
#pragma once
#include <string>
#include <vector>

#include "apps/config/program.h"

namespace godwit::apps {

struct Assignment {
  std::string option;  // "optimizer.lr"
  OptionValue value;
  std::string subject;  // beginning of a message: "--lr", "run.json: optimizer.lr"
};
using Assignments = std::vector<Assignment>;

// The options of a configuration and of all methods. Options of methods that are not selected are marked as
// inapplicable. Refers to the configuration.
class KnownOptions {
 public:
  explicit KnownOptions(const CommonConfig& config);
  const OptionList& list() const { return list_; }
  bool is_group(const std::string& name) const;  // "optimizer", "data", …
  // The option `name`. If `name` is a group and the value is a text, the group's name or path. Throws for an unknown
  // name, naming the nearest option, and for a group that the value cannot set.
  const Option& at(const std::string& subject, const std::string& name, const OptionValue& value) const;

 private:
  OptionList list_;
};

// Assignments of a JSON object. `group`: the object's place, "" or "optimizer". For text that is not one JSON object, a
// repeated key or an unknown key, throws an Error that begins with `subject` ("run.json") and names the key, or line
// and column.
Assignments read_json(const KnownOptions& known, const std::string& text, const std::string& subject,
                      const std::string& group);

// Applies `file`, then `command`, each in order. parse_command_line() says which parts of the file are left out.
ConfigPtr resolve(const Program& program, const Assignments& file, const Assignments& command);

// The text of --help, or of --help TOPIC: a method, a group of options, or an option. At most 100 columns. Throws for
// an unknown topic, naming the nearest one.
std::string help_text(const Program& program, const std::string& topic);

}  // namespace godwit::apps
