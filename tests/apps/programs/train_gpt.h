// Starts train_gpt on a small text.
#pragma once
#include <filesystem>
#include <string>

#include "tests/apps/programs/program_test.h"
#include "tests/apps/small_data.h"

namespace godwit {

class TrainGpt : public ProgramTest {
 protected:
  TrainGpt()
      : ProgramTest("train_gpt",
                    "--run-dir run --data text.txt --set model.n_layer=2 --set model.n_head=2 --set model.n_embd=16 "
                    "--context 16 --batch 4 --max-steps 4 --set generate.tokens=20 --threads 1") {}
  void SetUp() override {
    write_file(folder_ / "text.txt", story(40));
    write_file(folder_ / "valid.txt", story(5));
  }

  // Trains with `flags` and moves the model to `to`.
  void save_model(const std::string& to, const std::string& flags = "--max-steps 1") {
    done(flags);
    std::filesystem::rename(run_dir() / "model", folder_ / to);
    std::filesystem::remove_all(run_dir());
  }
};

}  // namespace godwit
