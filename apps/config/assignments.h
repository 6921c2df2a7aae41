// Assignments: options with the values from a file or a command line. Internal to apps/config.
#pragma once
#include <string>
#include <vector>

#include "apps/config/program.h"

namespace godwit::apps {

struct Assignment {
  std::string option;  // "optimizer.lr"
  OptionValue value;
  std::string subject;  // beginning of a message: "--lr" or "run.json: optimizer.lr"
};
using Assignments = std::vector<Assignment>;

// The options of a configuration and of all methods. Options of unselected methods are marked as inapplicable. The
// configuration must outlive this object.
class KnownOptions {
 public:
  explicit KnownOptions(const CommonConfig& config);
  const OptionList& list() const { return list_; }
  bool is_group(const std::string& name) const;  // "optimizer", "data", …
  // Returns the option `name`. If `name` is a group and the value is a text, returns the option GROUP.name or
  // GROUP.path. Throws for an unknown name, and suggests the nearest option. Throws for a group without such an option.
  const Option& at(const std::string& subject, const std::string& name, const OptionValue& value) const;

 private:
  OptionList list_;
};

// Assignments from the JSON object `text`. `group`: place of the object, "" or "optimizer". Throws for invalid JSON, a
// repeated key, and an unknown key. The Error begins with `subject` ("run.json") and names the key, or line and column.
Assignments read_json(const KnownOptions& known, const std::string& text, const std::string& subject,
                      const std::string& group);

// Throws unless the configuration `text` is a JSON object, and if it names another program than `program`. The Error
// begins with `subject`. An error about the JSON ends with `remedy`.
void check_program(const std::string& text, const std::string& subject, const std::string& program,
                   const std::string& remedy = "");

// Applies `file`, then `command`, each in order. parse_command_line() determines which parts of the file are omitted.
ConfigPtr resolve(const Program& program, const Assignments& file, const Assignments& command);

// The text of --help, or of --help TOPIC. A topic is a method, a group of options, or an option. Lines have at most 100
// columns. Throws for an unknown topic and suggests the nearest one.
std::string help_text(const Program& program, const std::string& topic);

}  // namespace godwit::apps
