#include "apps/config/help.h"

#include <algorithm>
#include <cctype>

#include "engine/check.h"

namespace godwit::apps {
namespace {

struct MethodLine {
  const char *name, *text;
};
constexpr MethodLine kOptimizers[] = {
    {"sgd", "stochastic gradient descent"},
    {"sgdm", "with momentum, Nesterov's too"},
    {"adam", "Adam; weight_decay is L2"},
    {"adamw", "Adam with decoupled weight decay"},
    {"bert_adam", "adamw without bias correction, as BERT was trained"},
    {"adafactor", "second moments by row and column; lr relative to the weights"},
    {"softsignsgd", "momentum / mean of absolute gradients; full-precision Birder"},
    {"birder", "one bit per parameter each way between nodes, with error feedback"},
    {"binsgdm", "another name of birder"},
    {"one_bit_adam", "Adam, then its momentum in one bit per parameter"},
    {"zero_one_adam", "Adam in one bit per parameter from the start, and local steps"},
    {"lamb", "Adam with steps as long as each parameter's norm says"},
    {"one_bit_lamb", "LAMB, then its momentum in one bit per parameter"},
};
constexpr MethodLine kExchanges[] = {
    {"dense", "all-reduce over all workers; wire f32, bf16, f16 or int8"},
    {"hierarchical", "within nodes, between nodes, within nodes"},
    {"qsgd", "stochastic levels of each block's norm"},
    {"terngrad", "-1, 0 or 1 times each block's largest magnitude, stochastic"},
    {"one_bit_sgd", "signs and one mean per sign and block, both ways, with error feedback"},
    {"signsgd", "one bit per parameter each way: the majority of signs, which is all that is left"},
    {"randomk", "values at random places, the same on all workers, with error feedback"},
    {"powersgd", "matrices as products of two of low rank, with error feedback"},
    {"topk", "the largest values of each parameter, with error feedback"},
    {"ef21", "estimates of the gradients that compressed differences move"},
    {"zeropp", "4-bit blocks to sharded owners, 8-bit parameters back"},
    {"loco", "1, 4 or 8 bits to the owners, with an 8-bit average of what rounding lost"},
    {"loco_zeropp", "loco's gradients, zeropp's parameters"},
    {"ef_signsgd", "one bit per value and a scale per block, each way, with error feedback"},
};

template <size_t N>
const char* text_of(const MethodLine (&lines)[N], const char* what, const std::string& name) {
  const auto* found = std::find_if(std::begin(lines), std::end(lines), [&](const auto& o) { return name == o.name; });
  check(found != std::end(lines), "help: ", what, " '", name, "' has no description");
  return found->text;
}

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

// Help, choices and default: "of the learning rate: [constant], multi_step, linear". Defaults of optimizer and exchange
// keys differ by method and are left out.
std::string meaning(const Program& program, const Setting& setting, const CommonConfig& config) {
  const bool of_method = setting.section == "optimizer" || setting.path.starts_with("exchange.");
  std::string value = of_method ? "" : value_text(config, setting);
  if (setting.path == "optimizer.name") value = program.default_optimizer;
  const bool listed = setting.path == "optimizer.name" || setting.path == "exchange.name";  // below
  std::string text = setting.help;
  if (!setting.choices || listed) return value.empty() ? text : text + " [" + value + "]";
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
    const char* meaning = text_of(kOptimizers, "optimizer", name);
    text += line(name, 15, detail::concat(meaning, " [lr ", program.optimizer_defaults(*config, name).lr, "]"));
  }
  text += "\nExchanges of gradients, behind optimizers that do not communicate themselves; docs/methods\n";
  for (const std::string& name : exchange_names()) text += line(name, 14, text_of(kExchanges, "exchange", name));
  text +=
      "\nKeys of --set and of the JSON file that have no flag [default]; defaults of optimizer and exchange\n"
      "keys differ by method: see --print-config\n";
  for (const Setting& setting : program.settings)
    if (setting.flag.empty()) text += line(setting.path, 32, meaning(program, setting, *config));
  return text + program.results;
}

}  // namespace godwit::apps
