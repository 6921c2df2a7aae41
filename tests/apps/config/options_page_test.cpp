// docs/methods/options.md is generated from the option descriptions. To update it after a change:
//   GODWIT_UPDATE=1 build/release/apps_tests --gtest_filter='OptionsPage.*'
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "apps/image/image_config.h"

namespace godwit::apps {
namespace options_page_test {

std::string cell(std::string text) {  // escapes text for a Markdown table
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
  return text;
}

constexpr const char* kHead = "\n| option | default | values | meaning |\n| --- | --- | --- | --- |\n";

// One row of a table. `defaults` is empty in the key by which rows of several methods are compared.
std::string row(const std::string& group, const Option& option, const std::string& defaults) {
  std::string values = range_text(option.range);
  values = values.empty() ? "" : values.substr(values.starts_with(" of ") ? 4 : 1);
  for (const std::string& choice : option.choices) values.append(values.empty() ? "`" : ", `").append(choice + "`");
  const char* quote = defaults.empty() ? "" : "`";
  return detail::concat("| `", group, option.name, "` | ", quote, defaults, quote, " | ", cell(values), " | ",
                        cell(option.help), " |\n");
}

// An option that all methods have is listed once if more than half of them share its default. The table of a method
// then has the option only if the method's default differs.
template <class Method, class Config>
std::string section(const std::string& title, const std::string& group) {
  std::map<std::string, std::map<std::string, size_t>> methods_by_default;  // row without default -> default -> methods
  for (const Method* method : methods<Method>()) {
    const Config config(method->name);
    for (const Option& option : config.list()) ++methods_by_default[row(group, option, "")][value_text(option)];
  }
  const size_t count = methods<Method>().size();
  std::map<std::string, std::string> shared;  // row without default -> default
  for (const auto& [key, defaults] : methods_by_default) {
    size_t sum = 0;
    for (const auto& [value, uses] : defaults) sum += uses;
    for (const auto& [value, uses] : defaults)
      if (sum == count && 2 * uses > count) shared[key] = value;
  }

  std::string text = detail::concat("\n## ", title, "\n\nEvery method of this section has these options. Its own table "
                                    "lists them only if the default is\nanother one.\n", kHead);
  const Config first(methods<Method>().front()->name);
  for (const Option& option : first.list())
    if (const auto at = shared.find(row(group, option, "")); at != shared.end()) text += row(group, option, at->second);
  for (const Method* method : methods<Method>()) {
    text += detail::concat("\n### ", method->name, "\n\n", method->help, ".\n");
    for (const std::string& alias : method->aliases) text += detail::concat("Also called `", alias, "`.\n");
    if (!method->paper.empty()) text += detail::concat("Paper: ", method->paper, ".\n");
    text += detail::concat("A worker sends: ", method->bytes, ".\n");
    const Config config(method->name);
    std::string rows;
    for (const Option& option : config.list()) {
      const auto at = shared.find(row(group, option, ""));
      if (at == shared.end() || at->second != value_text(option)) rows += row(group, option, value_text(option));
    }
    if (!rows.empty()) text += kHead + rows;
  }
  return text;
}

TEST(OptionsPage, IsGeneratedFromTheDescriptions) {
  const std::string text =
      "# Options of every method\n\n"
      "This page lists the options of every optimizer and exchange. It is generated from the sources\n"
      "(`tests/apps/config/options_page_test.cpp`). `./train_resnet --help NAME` prints the options of one\n"
      "method. `train_bert`, `train_lm` and `train_gpt` have other defaults for some options: see\n"
      "`--help NAME` of the program.\n\n"
      "In the bytes that a worker sends per step, d is the number of parameters, W the number of workers, n\n"
      "the number of nodes, and m the number of workers per node.\n" +
      section<OptimizerMethod, OptimizerConfig>("Optimizers", "optimizer.") +
      section<ExchangeMethod, ExchangeConfig>("Exchanges", "exchange.");
  const std::string file = detail::concat(GODWIT_SOURCE_DIR, "/docs/methods/options.md");
  if (std::getenv("GODWIT_UPDATE")) std::ofstream(file) << text;
  std::stringstream page;
  page << std::ifstream(file).rdbuf();
  EXPECT_TRUE(page.str() == text) << "docs/methods/options.md is out of date; see the first lines of " << __FILE__;
}

}  // namespace options_page_test
}  // namespace godwit::apps
