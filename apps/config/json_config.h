// Configurations as JSON text. Internal to apps/config.
#pragma once
#include <string>
#include <vector>

#include "apps/config/program.h"

namespace godwit::apps {

// Every value of a JSON file. Throws, naming the file and the key or the line and column, for a file that cannot be
// read, text that is not one JSON object, a key that occurs twice, an unknown key.
std::vector<Assignment> read_json_file(const Program& program, const std::string& file);

// The same for text; `subject` opens the texts of errors, `group` is the path the object stands at ("" or "optimizer").
std::vector<Assignment> read_json_text(const Program& program, const std::string& text, const std::string& subject,
                                       const std::string& group);

}  // namespace godwit::apps
