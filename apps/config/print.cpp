// The configuration as aligned lines.
#include <algorithm>

#include "apps/config/program.h"

namespace godwit::apps {
namespace {

constexpr size_t kWidth = 100;

// The label, then words separated by two spaces; lines after the first are indented.
std::string row(const std::string& label, const std::vector<std::string>& words, size_t indent) {
  std::string text = label + std::string(indent - label.size(), ' ');
  size_t column = indent;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0 && column + 2 + words[i].size() > kWidth) {
      text.append("\n").append(indent, ' ');
      column = indent;
    } else if (i > 0) {
      text += "  ";
      column += 2;
    }
    text += words[i];
    column += words[i].size();
  }
  return text + "\n";
}

}  // namespace

std::string summary(const CommonConfig& config, const Rows& extra) {
  std::vector<std::pair<std::string, std::vector<std::string>>> rows;
  for (const Option& option : config.options()) {
    const std::string value = value_text(option);
    if (value.empty() || !option.inapplicable.empty()) continue;
    if (rows.empty() || rows.back().first != option.section) rows.push_back({option.section, {}});
    const bool name = option.name == option.section + ".name";
    std::string key = option.name;
    if (key.starts_with(option.section + ".")) key.erase(0, option.section.size() + 1);
    if (key.ends_with(".name")) key.resize(key.size() - 5);
    rows.back().second.push_back(name ? value : key + "=" + value);
  }
  for (const auto& [label, text] : extra) rows.push_back({label, {text}});
  size_t indent = 0;
  for (const auto& [label, words] : rows) indent = std::max(indent, label.size() + 2);
  std::string text;
  for (const auto& [label, words] : rows) text += row(label, words, indent);
  return text;
}

}  // namespace godwit::apps
