#include "apps/common/help.h"

#include <algorithm>
#include <cctype>

#include "engine/check.h"

namespace godwit::apps {
namespace {

struct OptimizerLine {
  const char *name, *text;
};
constexpr OptimizerLine kOptimizers[] = {
    {"sgd", "stochastic gradient descent"},
    {"sgdm", "with momentum, Nesterov's too"},
    {"adam", "Adam; weight_decay is L2"},
    {"adamw", "Adam with decoupled weight decay"},
    {"bert_adam", "adamw without bias correction, as BERT was trained"},
    {"softsignsgd", "momentum / mean of absolute gradients; full-precision Birder"},
    {"birder", "one bit per parameter each way between nodes, with error feedback"},
    {"binsgdm", "another name of birder"},
};

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string value_name(const Setting& setting, CommonConfig& config) {
  const SettingRef ref = setting.member(config);
  if (std::holds_alternative<bool*>(ref)) return "";  // a switch
  if (!setting.stands.empty()) return setting.stands;
  if (std::holds_alternative<std::string*>(ref)) return "NAME";
  return std::holds_alternative<double*>(ref) ? "X" : "N";
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size() + 2, width), ' ');
  return text;
}

// Help, choices and default: "of the learning rate: [constant], multi_step, linear". Defaults of optimizer keys differ
// by optimizer and are left out.
std::string meaning(const Program& program, const Setting& setting, const CommonConfig& config) {
  std::string value = setting.section == "optimizer" ? "" : value_text(config, setting);
  if (setting.path == "optimizer.name") value = program.default_optimizer;
  std::string text = setting.help;
  if (!setting.choices || setting.path == "optimizer.name") return value.empty() ? text : text + " [" + value + "]";
  const std::vector<std::string> names = setting.choices();
  for (size_t i = 0; i < names.size(); ++i) {
    text.append(i > 0 ? ", " : text.empty() ? "" : ": ");
    text.append(names[i] == value ? "[" + names[i] + "]" : names[i]);
  }
  return text;
}

std::string line(const std::string& word, size_t width, const std::string& text) {
  std::string result = "  ";
  return result.append(padded(word, width)).append(text).append("\n");
}

}  // namespace

std::string help_text(const Program& program) {
  const ConfigPtr config = default_config(program);
  std::string text = program.purpose;
  std::string section;
  for (const Setting& setting : program.settings) {
    if (setting.flag.empty()) continue;
    if (setting.section != section) text += upper(setting.section.substr(0, 1)) + setting.section.substr(1) + "\n";
    section = setting.section;
    text += line(setting.flag + " " + value_name(setting, *config), 22, meaning(program, setting, *config));
  }
  text += "Configuration; later ones win: the optimizer's defaults, FILE, then flags and --set in their order\n";
  text += line("--config FILE", 22, "JSON; a key is written {\"optimizer\": {\"lr\": 0.1}}");
  text += line("--set KEY=VALUE", 22, "any key, as --set optimizer.momentum=0.8");
  text += line("--print-config", 22, "print every value as JSON and end");
  text += line("--help", 22, "print this and end");
  text += "\nOptimizers\n";
  for (const std::string& name : optimizer_names()) {
    const auto* found = std::find_if(std::begin(kOptimizers), std::end(kOptimizers),
                                     [&](const OptimizerLine& o) { return name == o.name; });
    check(found != std::end(kOptimizers), "help: optimizer '", name, "' has no description");
    text += line(name, 13, detail::concat(found->text, " [lr ", program.optimizer_defaults(*config, name).lr, "]"));
  }
  text +=
      "\nKeys of --set and of the JSON file that have no flag [default]; defaults of optimizer keys differ by\n"
      "optimizer: see --print-config\n";
  for (const Setting& setting : program.settings)
    if (setting.flag.empty()) text += line(setting.path, 32, meaning(program, setting, *config));
  return text + program.results;
}

}  // namespace godwit::apps
