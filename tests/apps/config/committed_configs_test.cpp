// Every configuration in configs/ must be accepted by its program.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/config/command_line.h"
#include "apps/image/image_config.h"
#include "apps/text/gpt_config.h"
#include "apps/text/lm_config.h"
#include "apps/text/text_config.h"
#include "engine/check.h"

namespace godwit::apps {
namespace committed_configs_test {

// The program of configs/FOLDER/… or, without a folder, of configs/FILE.
const Program& program_of(const std::filesystem::path& file) {
  const std::map<std::string, const Program& (*)()> programs{
      {"cifar10", image_program},
      {"cifar100", image_program},
      {"imagenet", image_program},
      {"tiny_imagenet", image_program},
      {"fashion_birder.json", image_program},
      {"fashion_sgdm.json", image_program},
      {"bert", text_program},
      {"glue", text_program},
      {"mlm", text_program},
      {"squad", text_program},
      {"sst2", text_program},
      {"ptb", lm_program},
      {"gpt2", gpt_program},
      {"loco", gpt_program},
      {"shakespeare", gpt_program},
  };
  const auto found = programs.find(file.begin()->string());
  check(found != programs.end(), file.string(), ": this test has no program for ", file.begin()->string());
  return found->second();
}

TEST(CommittedConfigs, AreAccepted) {
  const std::filesystem::path folder = GODWIT_SOURCE_DIR "/configs";
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_directory() || entry.path().extension() == ".py") continue;
    ++files;
    const std::string file = entry.path().string();
    SCOPED_TRACE(file);
    const nlohmann::json text = nlohmann::json::parse(std::ifstream(file));
    const Program& program = program_of(entry.path().lexically_relative(folder));
    // Checks ranges and combinations. Device, data and initial weights are not opened.
    const std::vector<const char*> argv{program.name.c_str(), "--config", file.c_str(), "--data", "data"};
    std::ostringstream out;
    ConfigPtr config;
    ASSERT_NO_THROW(config = parse_command_line(program, static_cast<int>(argv.size()), argv.data(), out));
    EXPECT_EQ(config->epochs, text.value("epochs", config->epochs));
    EXPECT_EQ(config->optimizer.name(), text["optimizer"]["name"]);
    if (const auto* image = dynamic_cast<const ImageConfig*>(config.get())) {
      EXPECT_EQ(image->model.name, text["model"].is_string() ? text["model"] : text["model"]["name"]);
    }
  }
  EXPECT_GT(files, 70u);
}

}  // namespace committed_configs_test
}  // namespace godwit::apps
