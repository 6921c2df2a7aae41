// The configuration of train_bert.
#pragma once
#include <string>
#include <vector>

#include "apps/config/program.h"

namespace godwit::apps {

struct TextModelConfig {
  std::string name = "auto";    // auto: what the config.json beside the initial weights says, else bert_mini
  std::vector<double> dropout;  // of hidden states and, where it differs, of attention; empty: the model's
};

struct TextDataConfig {
  std::string path;                  // pretrain: a text file; squad, classify: a folder, or the training file
  std::string test;                  // the evaluation file, where path is a file
  std::string vocab;                 // vocab.txt or tokenizer.json; empty: that of the weights, else one is trained
  int64_t vocab_size = 8000;         // of a trained one, and the characters it has at most
  int64_t alphabet = 1000;
  std::string letter_case = "auto";  // lower, keep; auto: what the initial weights' tokenizer says, else lower
  int64_t length = 128;              // tokens of a sample at most
  int64_t test_limit = 0;            // squad: questions, classify: sentences that are evaluated; 0: all
  std::string sentences = "lines";   // pretrain: or split, at full stops
  int64_t hold_out = 50;             // pretrain without a test file: every so many documents one is evaluated on
  double masked = 0.15;              // pretrain: of the tokens
  double short_samples = 0.1;        // pretrain: fraction of samples that are shorter than `length`
  int64_t doc_stride = 128;          // squad: tokens from one window of a context to the next
  int64_t max_question = 64;         // squad: tokens
  int64_t max_answer = 30;           // squad: tokens
  int64_t n_best = 20;               // squad: answers to a question that are written
  int64_t window = 64;               // batches whose samples are sorted by length together
  int prefetch = 2;                  // batches prepared ahead, at least 1
  int workers = 0;                   // threads of a worker that prepare them; 0: 2, with a GPU all it has
};

struct TextConfig : CommonConfig {
  TextConfig() {
    schedule.name = "linear";
    schedule.warmup_fraction = 0.1;
  }
  void check_together() const override;

  std::string task = "pretrain";  // squad, classify
  TextModelConfig model;
  TextDataConfig data;

 protected:
  void describe(OptionList& list) override;
};

const Program& text_program();  // train_bert

}  // namespace godwit::apps
