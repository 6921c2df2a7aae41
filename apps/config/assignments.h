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

// The options of a configuration. The options of methods that the configuration does not select are in the list too,
// marked as inapplicable. Refers to the configuration.
class KnownOptions {
 public:
  explicit KnownOptions(const CommonConfig& config);
  const OptionList& list() const { return list_; }
  bool is_group(const std::string& name) const;  // "optimizer", "data", …
  // The option that a value for this name sets: for a text for a whole group, the group's name or path. Throws, naming
  // the nearest option, for an unknown name, and for a group that the value cannot set.
  const Option& at(const std::string& subject, const std::string& name, const OptionValue& value) const;

 private:
  OptionList list_;
};

// Throws an Error that begins with `subject` ("run.json") and names the key, or line and column, for text that is not
// one JSON object, a repeated key, an unknown key. `group`: where the object is, "" or "optimizer".
Assignments read_json(const KnownOptions& known, const std::string& text, const std::string& subject,
                      const std::string& group);

// `file` first, then `command`, each in order; see parse_command_line() for the parts of the file that are left out.
ConfigPtr resolve(const Program& program, const Assignments& file, const Assignments& command);

// The text of --help, or of --help TOPIC: a method, a group of options, or an option. At most 100 columns. Throws,
// naming the nearest topic, for an unknown one.
std::string help_text(const Program& program, const std::string& topic);

}  // namespace godwit::apps
