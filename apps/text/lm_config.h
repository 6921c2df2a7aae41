// The configuration of train_lm.
#pragma once
#include <string>

#include "apps/config/program.h"
#include "models/lstm.h"

namespace godwit::apps {

struct LmDataConfig {
  std::string path;             // a folder or a text file
  std::string valid, test;      // files; empty: files of the folder, or documents held out from `path`
  std::string vocab;            // vocabulary file; empty: the vocabulary is built from the training text
  int64_t vocab_size = 10000;   // largest number of words in a built vocabulary
  std::string words = "basic";  // rule that splits lines into words: spaces, basic
  int64_t length = 35;          // number of tokens per stream in a batch
  int64_t hold_out = 50;        // one text file: hold out one in N documents for validation, then one in N for the test
};

struct LmConfig : CommonConfig {
  LmConfig() {
    schedule.name = "cosine";
    clip.norm = 0.25;
    epochs = 3;
    batch = 20;
  }
  void check_together() const override;
  bool samples_are_streams() const override { return true; }

  std::string model_name = "lstm_small";
  LstmConfig model = lstm_config("lstm_small");  // vocab_size, dtype and seed are set later
  LmDataConfig data;

 protected:
  void describe(OptionList& list) override;
};

const Program& lm_program();  // train_lm

}  // namespace godwit::apps
