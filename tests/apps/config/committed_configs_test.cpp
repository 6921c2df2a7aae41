// Every configuration in configs/ must be accepted by its program.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/config/command_line.h"
#include "apps/image/image_config.h"
#include "apps/text/gpt_config.h"
#include "apps/text/language_config.h"
#include "apps/text/text_config.h"

namespace godwit::apps {
namespace committed_configs_test {

TEST(CommittedConfigs, AreAccepted) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(GODWIT_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    const std::string file = entry.path().string();
    const nlohmann::json text = nlohmann::json::parse(std::ifstream(file));
    const bool is_text = text.contains("task");
    const bool is_language = file.find("/configs/ptb/") != std::string::npos;
    const bool is_gpt =
        file.find("/configs/shakespeare/") != std::string::npos || file.find("/configs/gpt2/") != std::string::npos;
    const Program& program = is_text       ? text_program()
                             : is_language ? language_program()
                             : is_gpt      ? gpt_program()
                                           : image_program();
    // Checks ranges and combinations. The device is not opened.
    std::vector<const char*> argv{program.name.c_str(), "--config", file.c_str()};
    if (is_text) argv.insert(argv.end(), {"--data", "data"});  // the data is not opened either
    std::ostringstream out;
    ConfigPtr config;
    ASSERT_NO_THROW(config = parse_command_line(program, static_cast<int>(argv.size()), argv.data(), out)) << file;
    EXPECT_EQ(config->epochs, text.value("epochs", config->epochs)) << file;
    if (!is_text && !is_language && !is_gpt) {
      EXPECT_EQ(static_cast<const ImageConfig&>(*config).model.name, text["model"]) << file;
    }
  }
  EXPECT_GT(files, 20u);
}

}  // namespace committed_configs_test
}  // namespace godwit::apps
