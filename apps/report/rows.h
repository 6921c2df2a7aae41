// Rows: a table of labels and texts that is printed at the start of a run.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace godwit::apps {

using Rows = std::vector<std::pair<std::string, std::string>>;  // label, text

}  // namespace godwit::apps
