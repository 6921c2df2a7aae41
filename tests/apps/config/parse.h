// Command lines and configuration files for the tests of the configuration.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "apps/config/command_line.h"
#include "apps/image/image_config.h"
#include "apps/text/text_config.h"
#include "engine/check.h"

namespace godwit::apps {

using Words = std::vector<std::string>;

inline TextConfig parse_text(const Words& words) {
  std::vector<const char*> argv = {"train_bert"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  std::ostringstream out;
  return static_cast<const TextConfig&>(
      *parse_command_line(text_program(), static_cast<int>(argv.size()), argv.data(), out));
}

struct Answer {
  std::optional<ImageConfig> config;
  std::string printed;
};

inline Answer run(const Words& words) {
  std::vector<const char*> argv = {"train_resnet"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  std::ostringstream out;
  Answer answer;
  const ConfigPtr config = parse_command_line(image_program(), static_cast<int>(argv.size()), argv.data(), out);
  if (config) answer.config = static_cast<const ImageConfig&>(*config);
  answer.printed = out.str();
  return answer;
}

inline ImageConfig parse(const Words& words) { return run(words).config.value(); }

inline std::string error(const Words& words) {
  try {
    run(words);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

inline std::string write_file(const std::string& text) {
  const std::string path =
      testing::TempDir() + "/godwit_config_" + std::to_string(std::hash<std::string>()(text)) + ".json";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline std::string file_error(const std::string& text) { return error({"--config", write_file(text)}); }

// The message must be one line and contain every part.
inline void expect_parts(const std::string& message, const Words& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' does not contain '" << part << "'";
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

}  // namespace godwit::apps
