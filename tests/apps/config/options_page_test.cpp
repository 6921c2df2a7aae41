// docs/methods/options.md is generated from the option descriptions. To update it after a change:
//   GODWIT_UPDATE=1 build/release/apps_tests --gtest_filter='OptionsPage.*'
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "apps/image/image_config.h"

namespace godwit::apps {
namespace options_page_test {

std::string cell(std::string text) {  // escapes text for a Markdown table
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
  return text;
}

template <class Method, class Config>
std::string section(const std::string& title, const std::string& group) {
  std::string text = detail::concat("\n## ", title, "\n");
  for (const Method* method : methods<Method>()) {
    text += detail::concat("\n### ", method->name, "\n\n", method->help, ".\n");
    for (const std::string& alias : method->aliases) text += detail::concat("Also called `", alias, "`.\n");
    if (!method->paper.empty()) text += detail::concat("Paper: ", method->paper, ".\n");
    text += detail::concat("A worker sends: ", method->bytes, ".\n");
    text += "\n| option | default | values | meaning |\n| --- | --- | --- | --- |\n";
    const Config config(method->name);
    for (const Option& option : config.list()) {
      std::string values = range_text(option.range);
      values = values.empty() ? "" : values.substr(values.starts_with(" of ") ? 4 : 1);
      for (const std::string& choice : option.choices) values.append(values.empty() ? "`" : ", `").append(choice + "`");
      const std::string value = value_text(option);
      const char* quote = value.empty() ? "" : "`";
      text += detail::concat("| `", group, option.name, "` | ", quote, value, quote, " | ", cell(values), " | ",
                             cell(option.help), " |\n");
    }
  }
  return text;
}

TEST(OptionsPage, IsGeneratedFromTheDescriptions) {
  const std::string text =
      "# Options of every method\n\nThis page is generated from the sources "
      "(`tests/apps/config/options_page_test.cpp`). "
      "`./train_resnet --help NAME`\nprints the same for one method. `train_bert`, `train_lm` and `train_gpt` have "
      "other defaults for some\noptions: see `--help NAME` of the program.\n\nIn the bytes per step and worker, d is "
      "the number of parameters, W of workers, n of nodes, m of workers\nper node.\n" +
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
