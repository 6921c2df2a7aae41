// The configuration of train_bert.
#pragma once
#include <string>
#include <vector>

#include "apps/config/program.h"

namespace godwit::apps {

struct TextModelConfig {
  std::string name = "auto";    // auto: from the config.json next to the initial weights, otherwise bert_mini
  std::vector<double> dropout;  // dropout of hidden states and, optionally, of attention; empty: the model's defaults
  std::string recompute = "false";  // layers whose activations backward recomputes
};

struct TextDataConfig {
  std::string path;                  // pretrain: text file; squad, classify: folder or training file
  std::string test;                  // evaluation file; empty: in the folder `path`, or held out (pretrain)
  std::string vocab;                 // vocab.txt or tokenizer.json; empty: from the initial weights, otherwise trained
  int64_t vocab_size = 8000;         // maximum number of tokens in a trained vocabulary
  int64_t alphabet = 1000;
  std::string letter_case = "auto";  // lower, keep; auto: as in the initial weights' tokenizer, otherwise lower
  int64_t length = 128;              // maximum number of tokens per sample
  int64_t test_limit = 0;            // maximum number of evaluated questions (squad) or sentences (classify); 0: all
  std::string sentences = "lines";   // pretrain: lines, or split (at sentence ends)
  int64_t hold_out = 50;             // pretrain without a test file: evaluate on one in this many documents
  double masked = 0.15;              // pretrain: fraction of the tokens to mask
  double short_samples = 0.1;        // pretrain: fraction of samples shorter than `length`
  int64_t doc_stride = 128;          // squad: number of tokens between the starts of consecutive windows
  int64_t max_question = 64;         // squad: maximum number of tokens in a question
  int64_t max_answer = 30;           // squad: maximum number of tokens in an answer
  int64_t n_best = 20;               // squad: number of answers written per question
  int64_t window = 64;               // number of batches whose samples are sorted by length together
  int prefetch = 2;                  // number of batches prepared in advance, at least 1
  int workers = 0;  // loader threads per worker; 0: at most 2 on the CPU, all of the worker's threads with a GPU
};

struct TextConfig : CommonConfig {
  TextConfig() {
    schedule.name = "linear";
    schedule.warmup_fraction = 0.1;
  }
  void check_together() const override;
  std::string automatic_network() const override { return "bert_mini"; }

  std::string task = "pretrain";  // pretrain, squad, classify
  TextModelConfig model;
  TextDataConfig data;

 protected:
  void describe(OptionList& list) override;
};

const Program& text_program();  // train_bert

}  // namespace godwit::apps
