// Prints the configuration as aligned lines.
#include <algorithm>

#include "apps/config/program.h"
#include "engine/wrap.h"

namespace godwit::apps {

std::string summary(const CommonConfig& config, const Rows& extra) {
  std::vector<std::pair<std::string, std::vector<std::string>>> rows;
  for (const Option& option : config.options()) {
    const std::string value = value_text(option);
    if (value.empty() || !option.inapplicable.empty()) continue;
    if (rows.empty() || rows.back().first != option.section) rows.push_back({option.section, {}});
    std::string key = option.name;
    if (key.starts_with(option.section + ".")) key.erase(0, option.section.size() + 1);
    if (key.ends_with(".name")) key.resize(key.size() - 5);
    rows.back().second.push_back(key == "name" ? value : key + "=" + value);
  }
  for (const auto& [label, text] : extra) rows.push_back({label, {text}});
  size_t indent = 0;
  for (const auto& [label, words] : rows) indent = std::max(indent, label.size() + 2);
  std::string text;
  for (const auto& [label, words] : rows) text += wrap(label, indent, words, "  ");
  return text;
}

}  // namespace godwit::apps
