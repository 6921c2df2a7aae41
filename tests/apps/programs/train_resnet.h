// Starts train_resnet on a small dataset.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tests/apps/programs/program_test.h"
#include "tests/apps/small_data.h"

namespace godwit {

class TrainResnet : public ProgramTest {
 protected:
  TrainResnet() : ProgramTest("train_resnet", "--data data --run-dir run --max-steps 4") {}
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "data");
    write_images(folder_ / "data", "train", 256, 256);
    write_images(folder_ / "data", "t10k", 50, 50);
  }
  // The losses and accuracies of metrics.jsonl as text.
  static std::string losses(const std::vector<nlohmann::json>& lines) {
    std::string text;
    for (const nlohmann::json& line : lines)
      if (line.contains("loss")) text += line["loss"].dump() + " ";
      else text += "test " + line["test_loss"].dump() + " " + line["test_top1"].dump() + " ";
    return text;
  }
};

}  // namespace godwit
